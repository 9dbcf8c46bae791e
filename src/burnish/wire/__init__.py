"""An engine's answers, typed: chunks of a stream, whole replies, and the reply that they form."""
