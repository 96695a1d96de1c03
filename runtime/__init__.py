"""Modules, loaders, executor and artifact: what a deployed program needs, and nothing else."""
