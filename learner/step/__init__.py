"""One step: its length, its refit from the base, and the report on it."""
