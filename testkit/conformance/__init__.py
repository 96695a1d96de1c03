"""Levels of conformance, each a file: what a backend claims is held against the reference."""
