"""What the nodes of a model demand of extents: asked of the operator table, decided, and what is left kept."""
