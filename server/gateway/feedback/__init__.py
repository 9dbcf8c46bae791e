"""Feedback: `parse` reads a body, `accept` appends it, `stored` shows and deletes it. The ingester joins it to its
reply.

`vote_tokens` let a browser rate one reply without a key. `commands` and `remark` take ratings that a user says in the
conversation itself.
"""
