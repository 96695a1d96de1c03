"""Compiled regions and the graph between them as one program: symbols, procedures, memory."""
