"""How far a judge can be trusted: golden sets, agreement, judging again."""
