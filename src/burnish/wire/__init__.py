"""What an engine says, typed: chunks of a stream, whole replies, and the reply that they add up to."""
