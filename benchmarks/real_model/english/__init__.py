"""Plain English: simulated users want a house style; the arms differ in how they use the users' words."""
