"""Strategies: for each kind of kernel the loops that suit it, one strategy a file, in families; here what a row is."""
