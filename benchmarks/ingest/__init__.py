"""Benchmarks of ingestion: how fast records become the journal, and how large it is."""
