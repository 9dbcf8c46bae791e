"""Adapter versions: which exist, which is live, and what they must show. No torch, no HTTP."""
