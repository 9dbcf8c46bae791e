"""Benchmarks of the whole product with a real language model: does it learn, does it last, what does it cost."""
