"""The training of the sandbox's base model and judges."""
