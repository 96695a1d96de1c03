"""Calls of a vendor's C functions: what a backend says of one kernel, and the operands that it says it of.

A call is a C expression with fields: braces around a name that is known here. All others are C's own, as in
``(float[]){1, {alpha}}``; with a space inside, ``{ alpha }``, they always are.

    {A}  {Y}  {inputs[0]}   the pointer to an operand's elements; NULL for one that is absent
    {A.shape[0]}            an extent: a number, or an expression over the shapes that the function is given
    {A.size}  {A.rank}      the number of elements, of axes
    {A.strides[0]}          in elements; tensors are contiguous
    {scale.value}           the one element of a constant, as a literal
    {alpha}  {Gemm.alpha}   an attribute, as a literal; of one operator of a composite
    {pads}  {pads:int}      a list, as an array of int64_t, or of the type that is named
    {scratch}               the memory that the call asked for
    {kept}                  the address of what the call keeps from run to run, a ``void **``: NULL in a first run

Inputs of an operator have ONNX's names, those of a composite the names that its pattern captures them under, and all of
them their position. Outputs are ``Y``, or ``Y0``, ``Y1`` where there are several.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graft.core.affine.expressions import multiply
from graft.errors import PluginError
from graft.plugins.json_graph import BodyOperator, JsonNode
from graft.runtime.dtypes import dtype_name
from graft.runtime.extents import Extent


class C(str):
    """A text that is C already: a value of a call that is written as it stands, such as ``CblasNoTrans``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CCall:
    """The call that computes a kernel.

    ``text`` is a C expression with fields, ``values`` are further fields by name. ``packed`` replaces constants by what
    they become when they are packed at compile time. ``scratch`` are bytes of memory for the time of the call, aligned
    to 64. ``destroy`` is the C function that gives back what the call keeps: an operator that it made in its first run,
    say, which one run at a time has. ``success`` is what the call returns where nothing failed, in C; "" for a call
    that cannot fail, and None for what the backend says of all.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    packed: Mapping[str, np.ndarray] = field(default_factory=dict)
    scratch: Extent = 0
    destroy: str = ""
    success: str | None = None


@dataclass(frozen=True, slots=True)
class COperand:
    """A tensor that a kernel reads or writes."""

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    constant: np.ndarray | None = None
    """The contents, where they are known at compile time."""

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> COperand:
        """Return a constant."""
        return cls(name, dtype_name(array.dtype), array.shape, array)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Extent:
        """The number of elements."""
        return multiply(*self.shape)

    @property
    def strides(self) -> tuple[Extent, ...]:
        """By axis, the distance of neighbours in elements."""
        return tuple(multiply(*self.shape[axis + 1 :]) for axis in range(self.rank))

    @property
    def value(self) -> Any:
        """The one element of a constant; raise PluginError if this is none."""
        if self.constant is None or self.constant.size != 1:
            what = "is no constant" if self.constant is None else f"has {self.constant.size} elements"
            raise PluginError(f"'{self.name}' {what}; 'value' is that of a constant with one element")
        return self.constant.reshape(-1)[0].item()


@dataclass(frozen=True, slots=True)
class CKernel:
    """A kernel that a backend is asked for the call of: a composite, or one operator, with what it reads and writes."""

    node: JsonNode
    inputs: tuple[COperand | None, ...]
    """None where an optional one is absent."""
    outputs: tuple[COperand, ...]
    names: Mapping[str, COperand | None]
    """Inputs and outputs by their names."""

    @property
    def name(self) -> str:
        """The composite's name, or the operator's."""
        return self.node.name

    @property
    def where(self) -> str:
        """``npu.matmul_relu (node 'mm')``: how messages name this kernel."""
        return self.node.where

    @property
    def body(self) -> tuple[BodyOperator, ...]:
        """The operators of the kernel."""
        return self.node.body

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute by its name, or as ``"Conv.strides"`` where several operators of the body have it."""
        return self.node.attribute(name, default)

    def __getitem__(self, key: str | int) -> COperand:
        """Return an operand by name, or an input by its position; raise PluginError if it is absent or not there."""
        if isinstance(key, int):
            found = self.inputs[key] if key < len(self.inputs) else None
        elif key in self.names:
            found = self.names[key]
        else:
            raise PluginError(f"{self.where} has no operand '{key}'{nearest(key, self.names)}", operand=key)
        if found is None:
            raise PluginError(f"{self.where}: operand '{key}' is absent", operand=str(key))
        return found

    def has(self, key: str | int) -> bool:
        """Whether an optional operand is given."""
        if isinstance(key, int):
            return key < len(self.inputs) and self.inputs[key] is not None
        return self.names.get(key) is not None


def nearest(name: str, known: Mapping[str, Any]) -> str:
    """Return the end of a message about a name that is not among those known."""
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known) or 'none'}"
