"""The backend `rknn`: what Rockchip's toolkit is asked to compute, and its options."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

import graft
from graft.errors import CompileError

JOINING = ("Add", "Concat", "Div", "MatMul", "Max", "Mul", "Sub")
"""Operators of several tensors; what others read besides their first is constant."""
OPERATORS = (
    *JOINING,
    "Abs", "AveragePool", "BatchNormalization", "Clip", "Conv", "ConvTranspose", "Elu", "Erf", "Exp", "Flatten",
    "Gemm", "GlobalAveragePool", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "MaxPool", "Neg", "PRelu",
    "Pad", "ReduceMean", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Softplus", "Sqrt", "Tanh", "Transpose",
)  # fmt: skip

ROUNDED = "the NPU computes in float16 or int8: precision=f16, or precision=int8,calibration=FILE.npz, allows that"


@dataclass(frozen=True)
class RknnOptions:
    """What is compiled for, and what float32 becomes."""

    target: Literal[
        "rk3588", "rk3576", "rk3568", "rk3566", "rk3562", "rv1126b", "rv1106b", "rv1106", "rv1103b", "rv1103",
    ] = graft.option("rk3588", help="the chip")  # fmt: skip
    device: Literal["simulator", "board"] = graft.option(
        "simulator", help="where programs run: board is this machine's NPU"
    )
    precision: Literal["exact", "f16", "int8"] = graft.option(
        "exact", help="what float32 may be rounded to; exact: nothing"
    )
    calibration: str | None = graft.option(
        None, help="an .npz of arrays by name of value, samples along axis 0, for int8"
    )
    optimise: int = graft.option(3, help="the toolkit's level of optimisation, 0 to 3")

    def __post_init__(self):
        if (self.precision == "int8") != (self.calibration is not None):
            raise ValueError("precision=int8 and calibration=FILE.npz belong together: the ranges of values are data's")
        if self.optimise not in range(4):
            raise ValueError(f"optimise is {self.optimise}, not 0 to 3")


class Rknn(graft.ToolkitBackend):
    """Takes networks of float16, which the NPU computes in; float32 where the user says what becomes of it."""

    name = "rknn"
    by_default = False  # on a host its programs are simulated
    toolkit = "graft_rknn.toolkit"
    needs = "rknn"
    opset = 17
    shapes = "static"
    one_sample = True
    install = "pip install graft-rknn, and rknn-toolkit2 in an interpreter of its own"
    options = RknnOptions

    @property
    def simulates(self):
        """Whether programs run by the toolkit's simulator."""
        return self.options.device == "simulator"

    @graft.supports(*OPERATORS)
    def floats(self, node):
        """Take an operator of the NPU's own type, or of one that the user lets be rounded to it."""
        computed = [one for one in (*node.inputs, *node.outputs) if one is not None and not one.is_constant]
        for value in computed:
            if value.dtype == "float32" and self.options.precision == "exact":
                return graft.Reject("dtype", ROUNDED)
            if value.dtype not in ("float16", "float32"):
                return graft.Reject("dtype", f"float16 and float32 only, got {value.dtype}")
            if not all(value.static_shape or (0,)):
                return graft.Reject("shape", f"the toolkit takes neither scalars nor extents of 0, got {value.shape}")
        if node.op_type not in JOINING and not all(one is None or one.is_constant for one in node.inputs[1:]):
            return graft.Reject("constant-required", f"of what {node.op_type} reads all but the first must be constant")
        return True

    def settings(self, region):
        """Add the samples that a region is quantised by."""
        return {**super().settings(region), "samples": self._samples(region)}

    def _samples(self, region):
        if self.options.calibration is None:
            return []
        with np.load(self.options.calibration) as file:
            missing = [value.name for value in region.inputs if value.name not in file.files]
            if missing:
                text = f"{self.options.calibration} has no values of {', '.join(missing)}; "
                text += "graft_rknn.calibration writes them"
                raise CompileError(f"rknn: {text}", reject=graft.Reject("constant-required", text))
            return [file[value.name] for value in region.inputs]
