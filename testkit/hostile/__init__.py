"""Hostile input: damaged models and artifacts, each of which must be answered or refused with a GraftError."""
