"""What the journal holds, for people who look at it: turns, sessions, feedback, and figures by version."""
