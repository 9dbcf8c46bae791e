"""Benchmarks of learning through the live gateway: gain and safety, with controls and seeds."""
