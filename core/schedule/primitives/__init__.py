"""Schedule primitives: steps that change the loops of a function and keep what it computes."""
