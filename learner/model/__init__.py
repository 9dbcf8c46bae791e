"""The base model with its adapter: forward passes, log-probs, files."""
