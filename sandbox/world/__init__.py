"""The sandbox's world: its language, its users, what they say."""
