"""Architectures of `transformers` with random weights: exported with open shapes, compiled, compared."""
