"""What must stand before anything serves, and the serving table kept true to the registry."""
