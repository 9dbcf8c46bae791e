"""The ways to ask for a reply: one file (or package) for each dialect, all turned into server/gateway/call.py's Call
and back."""
