"""The time and memory of the learner's step, compared with TRL's on the same rows."""
