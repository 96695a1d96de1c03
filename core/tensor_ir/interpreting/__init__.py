"""What stages and functions mean, run in NumPy."""
