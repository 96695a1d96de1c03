"""ONNX's elementwise operators in the terms of oneDNN: an algorithm with two numbers, or why it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST = float(np.finfo(np.float32).max)

BINARY = {"Add": "add", "Mul": "mul", "Sub": "sub", "Div": "div", "Max": "max", "Min": "min"}
COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min"})


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


def eltwise(op_type: str, attributes: Attributes, constants: Constants) -> Eltwise | None:
    """Return the oneDNN algorithm of an ONNX operator, None if there is none.

    The formulas are those of the oneDNN specification, eltwise primitive, v3.
    """
    build = _TABLE.get(op_type)
    return None if build is None else build(attributes, constants)


def is_eltwise(op_type: str) -> bool:
    """Whether some form of the operator is elementwise for oneDNN."""
    return op_type in _TABLE


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


_TABLE: Mapping[str, Callable[[Attributes, Constants], Eltwise | None]] = {
    "Relu": _fixed("relu"),
    "LeakyRelu": _with_alpha("relu", 0.01),
    "Elu": _with_alpha("elu", 1.0),
    "Sigmoid": _fixed("logistic"),
    "Tanh": _fixed("tanh"),
    "Exp": _fixed("exp"),
    "Log": _fixed("log"),
    "Abs": _fixed("abs"),
    "Sqrt": _fixed("sqrt"),
    "Neg": _fixed("linear", -1.0),
    "Reciprocal": _fixed("pow", 1.0, -1.0),
    "Softplus": _fixed("soft_relu", 1.0),
    "Round": _fixed("round"),
    "Mish": _fixed("mish"),
    "HardSwish": _fixed("hardswish", 1 / 6, 0.5),
    "HardSigmoid": _hard_sigmoid,
    "Swish": _with_alpha("swish", 1.0),
    "Gelu": _gelu,
    "Clip": _clip,
    "Pow": _pow,
}
