"""The gateway: a request becomes an Interaction."""
