"""The operators of XNNPACK, a row each; it imports nothing, for `LIMITED` is read when backends are listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """An operator: the ``kind`` by which it is checked and called, and its name among XNNPACK's.

    ``is_limited`` says that a NaN becomes a number. XNNPACK's kernels end in ``min(max(y, low), high)``, with
    infinities where nothing is to be limited; the instructions of x86 that compute this give the limit where the other
    operand is NaN. Later versions of XNNPACK swap the operands.
    """

    kind: str
    name: str = ""
    is_limited: bool = False


ROWS: Mapping[str, Row] = {
    "Conv": Row("convolution", "convolution", True),
    "MatMul": Row("matmul", "fully_connected", True),
    "Gemm": Row("gemm", "fully_connected", True),
    "MaxPool": Row("pool", "max_pooling", True),
    "AveragePool": Row("pool", "average_pooling", True),
    "GlobalAveragePool": Row("global pool", "global_average_pooling", True),
    "Softmax": Row("softmax", "softmax", True),
    "Add": Row("binary", "add", True),
    "Sub": Row("binary", "subtract", True),
    "Mul": Row("binary", "multiply", True),
    "Div": Row("binary", "divide", True),
    "Relu": Row("unary", "clamp", True),
    "Clip": Row("clamp", "clamp", True),
    "LeakyRelu": Row("slope", "leaky_relu"),
    "Elu": Row("elu", "elu"),
    "Sigmoid": Row("unary", "sigmoid"),
    "HardSwish": Row("unary", "hardswish"),
    "Abs": Row("unary", "abs"),
    "Neg": Row("unary", "negate"),
    "Floor": Row("unary", "floor"),
    "Ceil": Row("unary", "ceiling"),
    "Round": Row("unary", "bankers_rounding"),
    "Sqrt": Row("unary", "square_root"),
}
NO_ROW = Row("")
OF_IMAGES = frozenset(name for name, row in ROWS.items() if row.kind in ("convolution", "pool", "global pool"))
LIMITED = frozenset(name for name, row in ROWS.items() if row.is_limited)
