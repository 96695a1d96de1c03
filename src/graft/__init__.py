"""Graft: bring your own codegen to machine-learning models."""
