"""Benchmarks of what extents cost beside the kernels."""
