"""Rows of operators that Graft knows facts of but does not lower."""
