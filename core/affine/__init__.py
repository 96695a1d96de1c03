"""The algebra of extents and indices: expressions over integer symbols, their canonical form, intervals, text."""
