"""Sums of products: matrices, batches of them, narrow weights."""
