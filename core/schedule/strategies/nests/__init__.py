"""Nests of fused stages: elementwise, reductions, rows, sliding windows."""
