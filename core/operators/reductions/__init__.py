"""Rows of operators that reduce axes, or normalise or quantise along them."""
