"""Rows of operators that move, cut, join and repeat elements."""
