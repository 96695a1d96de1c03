"""A backend for Graft that lives outside its tree."""
