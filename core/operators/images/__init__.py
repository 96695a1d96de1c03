"""Rows of operators over images: windows and resampling."""
