"""The seam to an inference engine and its implementation for vLLM."""
