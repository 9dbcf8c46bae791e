"""Segment files: what the gateway writes before a client sees the end of its reply."""
