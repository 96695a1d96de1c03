"""Backends for tests of the kit, as the text of plugin files."""

from __future__ import annotations

from pathlib import Path

GOOD = """
import ctypes
import numpy as np
import graft
from graft.patterns import is_constant, is_op, wildcard

class Npu(graft.JsonBackend):
    name = "npu"

    @graft.supports(is_op("Relu")(is_op("MatMul")(wildcard(), is_constant())), name="npu.matmul_relu")
    def matmul_relu(self, match):
        return match.root.outputs[0].dtype == "float32" or graft.Reject("dtype", "float32 only")

    @graft.supports("Relu", "Add", "MatMul")
    def single(self, node):
        return node.dtype == "float32" or graft.Reject("dtype", "float32 only")

    def load(self, graph, constants):
        return lambda inputs: graph.run(inputs, constants, self.kernel)

    def kernel(self, node, arrays):
        return [KERNELS[node.name](*arrays)]

KERNELS = {
    "npu.matmul_relu": lambda a, b: np.maximum(a @ b, 0),
    "Relu": lambda a: np.asarray(np.maximum(a, 0), a.dtype),
    "Add": lambda a, b: np.asarray(a + b),
    "MatMul": lambda a, b: np.asarray(a @ b),
}
"""


def plugin(folder: Path, more: str = "", source: str = GOOD, name: str = "npu_plugin") -> Path:
    """Write a plugin file: a good backend, and behind it what breaks it."""
    path = folder / f"{name}.py"
    path.write_text(f"{source}\n{more}")
    return path
