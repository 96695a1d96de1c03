"""Attention in one kernel: scores, mask, Softmax and the product with the values."""
