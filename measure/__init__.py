"""Measuring: programs beside peers and against their model, formats over a model, the limits of this machine."""
