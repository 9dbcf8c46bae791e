"""How the sandbox's base model and judges were trained."""
