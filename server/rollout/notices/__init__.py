"""Notices to people: `news` finds what happened, `alerts` logs and keeps it, `webhook` delivers it."""
