"""Judged turns become training rows."""
