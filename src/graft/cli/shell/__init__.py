"""What `graft` gives to shells."""
