"""Random faults over a whole server, checked from outside by a ledger of its own."""
