"""What the journal holds of a voice: collected to be handed over, and erased."""
