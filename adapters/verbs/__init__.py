"""An operator's verbs: one set of functions behind the command line and the admin API."""
