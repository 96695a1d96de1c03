"""The backend `ort`: what ONNX Runtime is asked to compute, and the session that computes a region."""

from importlib.util import find_spec

import graft

OPERATORS = (
    "Abs", "Add", "AveragePool", "Concat", "Conv", "Div", "Elu", "Erf", "Exp", "Flatten", "Gelu", "Gemm",
    "GlobalAveragePool", "LayerNormalization", "LeakyRelu", "MatMul", "MaxPool", "Mul", "ReduceMean", "Relu", "Reshape",
    "Sigmoid", "Softmax", "Sqrt", "Sub", "Tanh", "Transpose",
)  # fmt: skip


class Ort(graft.JsonBackend):
    """Takes float32 networks; ONNX Runtime fuses what it is given itself, so there are no patterns."""

    name = "ort"
    shapes = "symbolic"  # a session takes any extents, so one serves all shapes of a region
    install = "pip install graft-ort"

    def available(self):
        """Look for the library without importing it: listing backends is not to load them."""
        return None if find_spec("onnxruntime") else "onnxruntime is not installed; pip install onnxruntime"

    @graft.supports(*OPERATORS)
    def float32(self, node):
        """Take an operator whose results are float32."""
        if node.dtype != "float32":
            return graft.Reject("dtype", f"float32 only, got {node.dtype}")
        if any(value.dtype != "float32" for value in node.outputs):
            return graft.Reject("dtype", f"float32 only, but {node.op_type} also returns positions")
        return True

    def load(self, graph, constants):
        """Return the session of a region."""
        from graft_ort.session import Session  # ONNX Runtime is imported where a program is loaded, not before

        return Session(graph, constants)
