"""Finding text that tries to speak to the judge."""
