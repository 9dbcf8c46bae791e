"""What a version must show: evidence from the journal, statistical tests, and the verdict of the gate."""
