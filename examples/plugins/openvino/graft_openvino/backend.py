"""The backend `openvino`: what OpenVINO is asked to compute, and its options."""

from dataclasses import dataclass
from typing import Literal

import graft

OPERATORS = (
    "Abs", "Add", "AveragePool", "Clip", "Concat", "Conv", "Div", "Erf", "Flatten", "Gemm", "GlobalAveragePool",
    "InstanceNormalization", "LayerNormalization", "LeakyRelu", "MatMul", "MaxPool", "Mul", "Neg", "ReduceMean", "Relu",
    "Reshape", "Sigmoid", "Softmax", "Sqrt", "Sub", "Tanh", "Transpose",
)  # fmt: skip
LIMITED = ("Clip", "Relu", "Softmax")
"""What is a maximum in OpenVINO, and a maximum of a NaN and a number is the number there."""


@dataclass(frozen=True)
class OpenVinoOptions:
    """Where a region is computed, and how."""

    device: Literal["CPU", "GPU", "NPU"] = graft.option("CPU", help="the device, as OpenVINO names it")
    precision: Literal["f32", "bf16", "f16"] = graft.option("f32", help="what float32 may be rounded to inside")
    threads: int = graft.option(0, help="threads of a processor; 0: as many as the program's")
    nan: Literal["keep", "drop"] = graft.option(
        "keep", help="what comes of a NaN in Relu, Clip and Softmax: NaN, as ONNX has it, or a number, which is faster"
    )


class OpenVino(graft.ToolkitBackend):
    """Takes float32 networks; OpenVINO fuses what it is given itself, so there are no patterns."""

    name = "openvino"
    toolkit = "graft_openvino.toolkit"
    needs = "openvino"
    opset = 22
    shapes = "symbolic"
    threaded = True
    install = "pip install graft-openvino"
    options = OpenVinoOptions

    @property
    def loses_nan(self):
        """The operators that the user lets lose NaN."""
        return frozenset(LIMITED if self.options.nan == "drop" else ())

    @graft.supports(*OPERATORS)
    def float32(self, node):
        """Take an operator whose tensors are float32, whatever its constants are."""
        computed = [one for one in (*node.inputs, *node.outputs) if one is not None and not one.is_constant]
        for value in computed:
            if value.dtype != "float32":
                return graft.Reject("dtype", f"float32 only, got {value.dtype}")
        if any(0 in one.shape for one in (*node.inputs, *node.outputs) if one is not None and one.shape):
            return graft.Reject("shape", "OpenVINO compiles neither constants without elements nor pools of no images")
        if node.op_type == "Conv" and not node.inputs[1].is_constant:
            return graft.Reject("constant-required", "OpenVINO has no convolution by weights of unknown extents")
        if node.op_type == "Clip" and None in (*node.inputs, *[None] * (3 - len(node.inputs))):
            return graft.Reject("attribute", "OpenVINO limits infinity where a bound is left out")
        if node.attribute("ceil_mode", 0):
            return graft.Reject("attribute", "OpenVINO counts windows otherwise where extents are rounded up")
        return True
