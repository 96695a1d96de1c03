"""A library of C kernels, and the backend that has Graft call them."""
