"""The parts of Burnish as processes: their commands, their start, their restart."""
