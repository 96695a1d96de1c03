"""When kernels are one function: the text of a kernel, and how kernels are made alike."""
