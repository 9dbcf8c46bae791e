"""Benchmarks of versions: sequential tests, swaps, rollbacks and personal agents."""
