"""Operators of ONNX that many functions and passes are written in, each said once, over whoever adds nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")
"""What stands for a tensor: a name, or a value of a graph."""


class Phrases(ABC, Generic[Value]):
    """A writer of nodes, with a method for each operator that many functions need."""

    @abstractmethod
    def __call__(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Add a node of one output and return that; None is an absent input."""

    @abstractmethod
    def ints(self, *values: int) -> Value:
        """Return a constant vector of int64."""

    def concatenated(self, *values: Value, axis: int, **more: Any) -> Value:
        """Return values one behind the other along an axis."""
        return self("Concat", *values, axis=axis, **more)

    def convolved(self, image: Value, weights: Value, bias: Value | None = None, **attributes: Any) -> Value:
        """Return the convolution of an image ``[n, c, ...]`` with weights ``[m, c, ...]`` and, if given, a bias."""
        return self("Conv", image, weights, *([bias] if bias else []), **attributes)

    def softmax(self, value: Value, axis: int = -1) -> Value:
        """Return exponentials along an axis, divided by their sum."""
        return self("Softmax", value, axis=axis)

    def transposed(self, value: Value, *order: int) -> Value:
        """Return a value with its axes in another order."""
        return self("Transpose", value, perm=list(order))

    def reshaped(self, value: Value, *shape: int) -> Value:
        """Return a value under another shape: 0 keeps an extent, -1 is what is left."""
        return self("Reshape", value, self.ints(*shape))
