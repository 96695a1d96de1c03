"""A made-up device for Graft: memory that the host cannot touch, and streams that put work off."""
