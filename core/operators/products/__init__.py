"""Rows of operators that are sums of products: contraction, attention, recurrence, Fourier transforms."""
