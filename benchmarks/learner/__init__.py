"""How fast the learner's step is, and in how much memory: beside TRL's, on the same rows."""
