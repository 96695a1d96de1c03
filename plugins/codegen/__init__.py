"""From a region to kernels, for every backend that generates code."""
