"""What oneDNN makes of ONNX's operators, a row each; elementwise ones become an algorithm with two numbers.

The other modules ask the rows: `checks` and `primitives` have a function for each kind of primitive, not for operators.
This one imports neither onnx nor the library, for a backend's `loses_nan` is read when backends are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Eltwise:
    """An elementwise algorithm of oneDNN with its ``alpha`` and ``beta``."""

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the form that the loader reads."""
        return {"algorithm": self.algorithm, "alpha": self.alpha, "beta": self.beta}


Attributes = Mapping[str, Any]
Constants = Sequence[np.ndarray | None]
"""The contents of the operator's inputs, None where they are computed or absent."""


@dataclass(frozen=True, slots=True)
class Row:
    """An operator: the ``kind`` of primitive that computes it, and the ``algorithm`` where a primitive has several.

    ``eltwise`` returns that of an elementwise operator by its attributes and constants, None where there is none; the
    formulas are those of the oneDNN specification, eltwise primitive, v3. ``parameters`` are the inputs that are read
    at compile time only: their element type does not matter. ``alone`` is what the operator costs by itself, where
    that is part of a fused kernel elsewhere. ``loses_nan`` says that a NaN may come out as a number: these are maxima
    (of a window without a number that is larger than the lowest finite one, -inf among them, they give that), and
    what is computed by exponentials. ``has_call`` says that `calls` has a call of the primitive in C.
    """

    kind: str
    algorithm: str = ""
    eltwise: Callable[[Attributes, Constants], Eltwise | None] | None = None
    parameters: tuple[int, ...] = ()
    alone: str = ""
    is_view: bool = False
    is_product: bool = False
    is_commutative: bool = False
    loses_nan: bool = False
    has_call: bool = False

    @property
    def channel(self) -> int:
        """The axis of the result that has one bias for each index."""
        return 1 if self.kind == "convolution" else -1


def _clip(attributes: Attributes, constants: Constants) -> Eltwise | None:
    low, high = (_bound(constants, 1, -LARGEST), _bound(constants, 2, LARGEST))
    return None if low is None or high is None else Eltwise("clip", low, max(low, high))


def _bound(constants: Constants, index: int, fallback: float) -> float | None:
    if index >= len(constants):
        return fallback
    value = constants[index]
    if value is None:
        return None
    return fallback if value.size == 0 else float(np.clip(value.ravel()[0], -LARGEST, LARGEST))


def _pow(attributes: Attributes, constants: Constants) -> Eltwise | None:
    exponent = constants[1]
    if exponent is None or exponent.size != 1:
        return None
    power = float(exponent.ravel()[0])
    return Eltwise("square") if power == 2.0 else Eltwise("pow", 1.0, power)


def _gelu(attributes: Attributes, constants: Constants) -> Eltwise:
    return Eltwise("gelu_tanh" if attributes.get("approximate", "none") == "tanh" else "gelu_erf")


def _fixed(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Attributes, Constants], Eltwise]:
    return lambda attributes, constants: Eltwise(algorithm, alpha, beta)


def _with_alpha(algorithm: str, default: float) -> Callable[[Attributes, Constants], Eltwise]:
    return lambda attributes, constants: Eltwise(algorithm, float(attributes.get("alpha", default)))


def _hard_sigmoid(attributes: Attributes, constants: Constants) -> Eltwise:
    return Eltwise("hardsigmoid", float(attributes.get("alpha", 0.2)), float(attributes.get("beta", 0.5)))


COPY, PASS = "a copy", "a pass over memory"


def _unary(build: Callable[[Attributes, Constants], Eltwise | None], *parameters: int, loses_nan: bool = False) -> Row:
    return Row("eltwise", eltwise=build, parameters=parameters, alone=PASS, loses_nan=loses_nan, has_call=True)


def _binary(algorithm: str, *, is_commutative: bool = False, loses_nan: bool = False) -> Row:
    return Row("binary", algorithm, alone=PASS, is_commutative=is_commutative, loses_nan=loses_nan, has_call=True)


def _view(kind: str = "reshape", *parameters: int) -> Row:
    return Row(kind, parameters=parameters, alone=COPY, is_view=True)


ROWS: Mapping[str, Row] = {
    "Conv": Row("convolution", is_product=True, has_call=True),
    "MatMul": Row("matmul", is_product=True, has_call=True),
    "Gemm": Row("gemm", is_product=True, has_call=True),
    "MaxPool": Row("pooling", "max", loses_nan=True, has_call=True),
    "AveragePool": Row("pooling", "average", has_call=True),
    "GlobalMaxPool": Row("global pooling", "max", loses_nan=True, has_call=True),
    "GlobalAveragePool": Row("global pooling", "average", has_call=True),
    "ReduceMean": Row("mean", "average", parameters=(1,)),
    "Softmax": Row("softmax", "softmax", loses_nan=True, has_call=True),
    "LogSoftmax": Row("softmax", "log_softmax", loses_nan=True, has_call=True),
    "LayerNormalization": Row("layer normalization"),
    "BatchNormalization": Row("batch normalization", alone=PASS),
    "LRN": Row("local response normalization"),
    "Reshape": _view("reshape", 1),
    "Flatten": _view(),
    "Squeeze": _view("squeeze", 1),
    "Unsqueeze": _view("reshape", 1),
    "Transpose": Row("transpose", alone=COPY),
    "Concat": Row("concat", alone=COPY),
    "Split": Row("split", parameters=(1,), alone=COPY),
    "Slice": Row("slice", parameters=(1, 2, 3, 4), alone=COPY),
    "Add": _binary("add", is_commutative=True),
    "Mul": _binary("mul", is_commutative=True),
    "Sub": _binary("sub"),
    "Div": _binary("div"),
    "Max": _binary("max", is_commutative=True, loses_nan=True),
    "Min": _binary("min", is_commutative=True, loses_nan=True),
    "Relu": _unary(_fixed("relu"), loses_nan=True),
    "LeakyRelu": _unary(_with_alpha("relu", 0.01)),
    "Elu": _unary(_with_alpha("elu", 1.0)),
    "Sigmoid": _unary(_fixed("logistic")),
    "Tanh": _unary(_fixed("tanh")),
    "Exp": _unary(_fixed("exp"), loses_nan=True),
    "Log": _unary(_fixed("log")),
    "Abs": _unary(_fixed("abs")),
    "Sqrt": _unary(_fixed("sqrt")),
    "Neg": _unary(_fixed("linear", -1.0)),
    "Reciprocal": _unary(_fixed("pow", 1.0, -1.0)),
    "Softplus": _unary(_fixed("soft_relu", 1.0)),
    "Round": _unary(_fixed("round")),
    "Mish": _unary(_fixed("mish")),
    "HardSwish": _unary(_fixed("hardswish", 1 / 6, 0.5), loses_nan=True),
    "HardSigmoid": _unary(_hard_sigmoid, loses_nan=True),
    "Swish": _unary(_with_alpha("swish", 1.0)),
    "Gelu": _unary(_gelu),
    "Clip": _unary(_clip, 1, 2, loses_nan=True),
    "Pow": _unary(_pow, 1),
}
LOSES_NAN = frozenset(name for name, row in ROWS.items() if row.loses_nan)


NO_ROW = Row("")
"""That of operators that no primitive computes in any form."""


def row_of(node: NodeView) -> Row:
    """Return the row of a node's operator, or `NO_ROW`."""
    return ROWS.get(node.op_type, NO_ROW) if node.domain in ("", "ai.onnx") else NO_ROW
