"""The operators that become layers, a row each: the patterns and the readers of `recognition` ask for kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Kind = Literal[
    "convolution", "product", "gemm", "addition", "maximum", "average", "mean", "concatenation", "requantization"
]
KINDS: Mapping[str, Kind] = {
    "Conv": "convolution",
    "MatMul": "product",
    "Gemm": "gemm",
    "Add": "addition",
    "MaxPool": "maximum",
    "GlobalMaxPool": "maximum",
    "AveragePool": "average",
    "GlobalAveragePool": "average",
    "ReduceMean": "mean",
    "Concat": "concatenation",
    "DequantizeLinear": "requantization",
}
"""By operator, the layer that it becomes between DequantizeLinear and QuantizeLinear."""
QUANTIZABLE = frozenset({*KINDS, "Relu", "Clip", "QuantizeLinear"})
"""Operators that composites hold, and that are refused by themselves."""


def operators_of(kind: Kind) -> tuple[str, ...]:
    """Return the operators of a kind of layer."""
    return tuple(name for name, one in KINDS.items() if one == kind)


ALONE = ("MaxPool", *operators_of("concatenation"))
"""What takes bytes as they are, too: nothing is computed of what they mean."""
