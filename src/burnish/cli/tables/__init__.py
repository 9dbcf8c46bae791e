"""Tables that the commands print for people."""
