"""Random models that are valid and well conditioned: one table of rows, drawn by seed, shrunk where they fail."""
