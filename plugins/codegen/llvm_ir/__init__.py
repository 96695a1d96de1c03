"""LLVM IR as text from expressions of the tensor IR, for every backend whose code LLVM makes."""
