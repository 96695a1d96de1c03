"""Vendors' modules in processes of their own: what crashes or hangs there is an error here."""
