"""The backend `tensorrt`: what TensorRT is asked to compute, and its options."""

from dataclasses import dataclass
from typing import Literal

import graft
from graft_tensorrt import toolkit

JOINING = ("Add", "Concat", "Div", "MatMul", "Max", "Min", "Mul", "Pow", "Sub")
"""Operators of several tensors; what others read besides their first is constant."""
OPERATORS = (
    *JOINING,
    "Abs", "AveragePool", "BatchNormalization", "Clip", "Conv", "ConvTranspose", "Elu", "Erf", "Exp", "Flatten", "Gelu",
    "Gemm", "GlobalAveragePool", "HardSigmoid", "HardSwish", "LayerNormalization", "LeakyRelu", "Log", "MaxPool", "Neg",
    "PRelu", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Softplus", "Sqrt", "Tanh",
    "Transpose",
)  # fmt: skip
MOST_AXES = 8
"""Of a tensor in TensorRT: Dims.MAX_DIMS."""


@dataclass(frozen=True)
class TensorRtOptions:
    """Which device a region is for, and how it is built."""

    device: int = graft.option(0, help="the number of the device, as CUDA counts them")
    precision: Literal["f32", "tf32"] = graft.option("f32", help="what factors of float32 products may be rounded to")
    refit: bool = graft.option(False, help="keep engines without weights, so that other weights need no other engine")
    level: int = graft.option(3, help="how long the builder searches, 0 to 5")

    def __post_init__(self):
        if self.level not in range(6):
            raise ValueError(f"level is {self.level}, not 0 to 5")


class TensorRt(graft.ToolkitBackend):
    """Takes float32 and float16 networks of numbers as extents; TensorRT fuses, so there are no patterns."""

    name = "tensorrt"
    by_default = False  # no part of it has been on a device
    toolkit = "graft_tensorrt.toolkit"
    needs = "tensorrt"
    opset = 20
    shapes = "static"
    install = "pip install graft-tensorrt 'tensorrt-cu12>=10.8'"
    options = TensorRtOptions
    loses_nan = frozenset({"Clip", "Max", "MaxPool", "Min", "Relu"})

    @property
    def refits(self):
        """Whether engines are kept without weights."""
        return self.options.refit

    def available(self):
        """Return why TensorRT cannot be had: its package, a driver, or the device is missing."""
        return super().available() or toolkit.fault(self.options.device)

    def version(self):
        """Return what an engine belongs to: the version of TensorRT, and the device."""
        return str(self.ask("version", self.options.device))

    @graft.supports(*OPERATORS)
    def floats(self, node):
        """Take an operator whose computed tensors are float32 or float16, whatever its constants are."""
        for value in (one for one in (*node.inputs, *node.outputs) if one is not None and not one.is_constant):
            if value.dtype not in ("float32", "float16"):
                return graft.Reject("dtype", f"float32 and float16 only, got {value.dtype}")
            if len(value.static_shape) > MOST_AXES or 0 in value.static_shape:
                return graft.Reject("shape", f"at most {MOST_AXES} axes, none of extent 0, got {value.shape}")
        if node.op_type not in JOINING and not all(one is None or one.is_constant for one in node.inputs[1:]):
            return graft.Reject("constant-required", f"of what {node.op_type} reads all but the first must be constant")
        if node.attribute("ceil_mode", 0):
            return graft.Reject("attribute", "TensorRT counts windows otherwise where extents are rounded up")
        return True
