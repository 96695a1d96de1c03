"""Shape inference, and what nodes demand of extents."""
