"""Quantisation: from a float model and data to a QDQ model, by a recipe; errors of each layer, metrics."""
