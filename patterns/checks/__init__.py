"""Checks of patterns and tables before anything is matched."""
