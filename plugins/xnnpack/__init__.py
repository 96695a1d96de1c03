"""XNNPACK, Google's library of floating-point operators, by calls in C."""
