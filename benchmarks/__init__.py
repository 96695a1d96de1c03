"""Benchmarks: each prints a table; ``python -m benchmarks`` runs the main ones."""
