"""The sandbox's world: its language, its users, and their messages."""
