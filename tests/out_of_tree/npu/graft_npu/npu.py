"""The backend `npu`: ten lines, and an engine that stands for the vendor's library."""

import numpy as np

import graft
from graft.patterns import is_op, wildcard


class Npu(graft.JsonBackend):
    """Takes MatMul in float32, and MatMul followed by Relu as one."""

    name = "npu"

    @graft.supports(is_op("Relu")(is_op("MatMul")(wildcard(), wildcard())), name="npu.matmul_relu")
    def matmul_relu(self, match):
        """Take every MatMul with a Relu behind it."""
        return True

    @graft.supports("MatMul")
    def matmul(self, node):
        """Take float32 only."""
        return node.dtype == "float32" or graft.Reject("dtype", f"float32 only, got {node.dtype}")

    def load(self, graph, constants):
        """Return the engine of a region."""
        return lambda inputs: graph.run(inputs, constants, kernel)


KERNELS = {
    "npu.matmul_relu": lambda a, b: np.maximum(a @ b, 0),
    "MatMul": lambda a, b: a @ b,
}


def kernel(node, arrays):
    """Compute one kernel of a graph."""
    return [KERNELS[node.name](*arrays)]
