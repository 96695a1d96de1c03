"""Which operators of a region share a kernel, and in which layout its values lie."""
