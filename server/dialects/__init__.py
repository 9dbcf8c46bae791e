"""The ways to ask for a reply: one file (or package) for each dialect, all turned into server/call.py's Call and back."""
