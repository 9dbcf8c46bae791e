"""Benchmarks of judging: attacks on the judge, its queue, its votes."""
