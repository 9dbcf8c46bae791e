"""Versions: what the sequential tests miss and what they take for worse."""
