"""`make gpu-check`: what the learner and the whole server do on one CUDA card."""
