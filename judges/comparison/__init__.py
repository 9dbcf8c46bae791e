"""Replies compared with each other: pairs for the gate, groups for GRPO."""
