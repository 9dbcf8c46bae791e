"""The gateway's way to the engines: connections, their pool, and failures turned into errors."""
