"""From a turn to a verdict: the question, the votes, and the record that is stored."""
