"""What rewrites are made of, and constant folding, which shape inference needs."""
