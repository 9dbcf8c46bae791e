"""Upkeep of the journal with what belongs to it: back up, restore, move, check."""
