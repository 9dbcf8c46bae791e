"""Objectives, one small file each. `registry` names them. The trainer depends on `objective` only."""
