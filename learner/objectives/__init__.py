"""Objectives, one small file each; `registry` names them. The trainer knows the seam in `objective` and nothing else."""
