"""How far a judge can be trusted: golden sets, agreement, and judging recorded turns again."""
