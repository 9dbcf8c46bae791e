"""Shadow groups on the serving side: which live turns get one, and how its replies are drawn while the engine is
idle."""
