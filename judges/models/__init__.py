"""Judging models, local and remote, their order and their budget."""
