"""Placement: which backend gets which units, by constraints, bounds of regions and a model of cost."""
