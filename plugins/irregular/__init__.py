"""Kernels of operators that are no loops over tensors of numbers: strings, sequences, what data decide the size of."""
