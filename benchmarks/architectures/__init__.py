"""Architectures of `transformers` with random weights: exported with open batch and length or size, compiled, compared."""
