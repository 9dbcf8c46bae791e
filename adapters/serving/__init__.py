"""Preparation of the state directory, and the serving table, which follows the registry."""
