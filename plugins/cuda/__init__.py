"""The CUDA backend: kernels for NVIDIA's devices from the tensor IR, as PTX or cubins."""
