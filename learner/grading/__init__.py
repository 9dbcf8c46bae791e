"""Graders of shadow groups that need no judge: by the user's hint, and by people's ratings."""
