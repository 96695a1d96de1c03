"""A library of C functions for Graft that lives outside its tree."""
