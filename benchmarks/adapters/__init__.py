"""benchmarks.adapters."""
