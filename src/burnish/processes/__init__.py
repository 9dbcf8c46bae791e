"""The parts of Burnish as processes: what they are, who starts them, who restarts them."""
