"""Feedback's way: `opinion` reads a body, `accept` appends it, `attach` joins it to its reply, `stored` shows and takes
back.

`token` lets a browser say one thing about one reply without a key.
"""
