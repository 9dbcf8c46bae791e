"""The registry of agents and versions: SQL rows, aliases, audit."""
