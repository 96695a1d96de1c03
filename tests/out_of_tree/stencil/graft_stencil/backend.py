"""The backend `stencil`: a small C library, called in ten lines."""

import graft
from graft.patterns import is_op, wildcard


class Stencil(graft.CSourceBackend):
    """Takes Relu in float32, and a product of matrices with Relu behind it as one."""

    name, headers, libraries, success = "stencil", ("stencil.h",), ("libgraftstencil.so.1",), "STENCIL_DONE"
    calls = {  # noqa: RUF012 (as a vendor writes it: without annotations)
        "stencil.matmul_relu": "stencil_matmul({a}, {b}, {Y}, {a.shape[0]}, {b.shape[1]}, {b.shape[0]}, STENCIL_RELU)",
        "Relu": "stencil_relu({X}, {Y.size}, {Y})",
    }

    @graft.supports(is_op("Relu")(is_op("MatMul")(wildcard().named("a"), wildcard().named("b"))))
    def matmul_relu(self, match):
        """Take two matrices."""
        return match["a"].rank == match["b"].rank == 2 or graft.Reject("rank", "matrices only")

    @graft.supports("Relu")
    def relu(self, node):
        """Take float32 only."""
        return node.dtype == "float32" or graft.Reject("dtype", f"float32 only, got {node.dtype}")
