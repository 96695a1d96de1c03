"""Rewriting: simplification, rules of algebra, names for what is shared, scalars for vectors."""
