"""Benchmarks of security: who is let in to what."""
