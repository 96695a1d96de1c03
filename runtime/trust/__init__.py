"""What of an artifact may be run: signatures, trusted keys, and what holds machine code."""
