"""Hook specifications, plugin manager, base classes and the in-tree backends."""
