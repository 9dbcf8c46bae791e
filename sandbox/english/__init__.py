"""A world in plain English: everyday questions, house styles that a program can check, and simulated users.

It is for real language models: the demo and `benchmarks.real_model` use it. Pure Python, no torch.
"""
