"""One step: its length and the report on it."""
