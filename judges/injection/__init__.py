"""Detection of prompt injection: text that speaks to the judge."""
