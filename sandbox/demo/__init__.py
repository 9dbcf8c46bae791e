"""The demonstration: simulated users talk to a whole Burnish through its gateway, and the agent improves."""
