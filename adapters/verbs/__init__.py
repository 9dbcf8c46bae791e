"""The verbs of an operator: the same functions behind the command line and the admin API."""
