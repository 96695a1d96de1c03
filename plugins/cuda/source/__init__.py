"""Kernels as CUDA C: written from the same launches as those of LLVM, compiled by NVRTC, to be read and edited."""
