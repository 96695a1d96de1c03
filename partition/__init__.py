"""Annotate, merge composites, merge regions, partition, place."""
