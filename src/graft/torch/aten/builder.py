"""The writer of ONNX nodes that the rows of the table use: tensors with PyTorch's types, constants, extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
import sympy
import torch

from graft.core.operators.definition.index_bounds import FROM_FRONT

ONNX_TYPES = {
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.int64: ir.DataType.INT64,
    torch.int32: ir.DataType.INT32,
    torch.int16: ir.DataType.INT16,
    torch.int8: ir.DataType.INT8,
    torch.uint8: ir.DataType.UINT8,
    torch.bool: ir.DataType.BOOL,
    torch.float8_e4m3fn: ir.DataType.FLOAT8E4M3FN,
    torch.float8_e5m2: ir.DataType.FLOAT8E5M2,
}
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)
EIGHTHS = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Types that numbers are stored as: ONNX computes with none of them."""
COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Types whose numbers are pairs of real ones, along a last axis."""

Extent = Any
"""A number, or a SymInt."""


class Refused(Exception):
    """Why an operator stays in PyTorch, in words."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value of the ONNX graph; ``shape`` is None where no row asks for it."""

    value: ir.Value
    dtype: torch.dtype
    shape: tuple[Extent, ...] | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.extents)

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The shape, which the row knows to be there."""
        assert self.shape is not None, "a row asks for the shape of a value in the middle"
        return self.shape

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.dtype in FLOATS


def require(condition: object, why: str) -> None:
    """Refuse, with the reason, what does not hold."""
    if not condition:
        raise Refused(why)


def onnx_type(dtype: torch.dtype) -> ir.DataType:
    """Return ONNX's name of an element type; refuse those that are not computed with."""
    require(dtype in ONNX_TYPES, f"elements of {str(dtype).removeprefix('torch.')} are not computed with")
    return ONNX_TYPES[dtype]


def is_symbolic(extents: Iterable[Extent]) -> bool:
    """Whether an extent is no number."""
    return any(not isinstance(one, int) for one in extents)


def numbers(extents: Iterable[Extent], why: str) -> list[int]:
    """Return extents that must be numbers; refuse those that are not."""
    found = list(extents)
    require(not is_symbolic(found), f"{why} is not known before the call")
    return found


@dataclass
class Builder:
    """What nodes are appended to. Each belongs to the operator that is being written, which ``origin`` names."""

    nodes: list[ir.Node] = field(default_factory=list)
    constants: dict[str, ir.Value] = field(default_factory=dict)
    symbols: dict[sympy.Symbol, ir.Value] = field(default_factory=dict)
    """Symbols of extents, each as an int64 tensor of one element."""
    has_pairs: bool = False
    """Whether complex numbers may be met: inside of a model that PyTorch takes no part of."""
    origin: str = ""
    names: dict[str, str] = field(default_factory=dict)
    """By node, the origin that it was written for."""
    _written: dict[object, ir.Value] = field(default_factory=dict)

    def op(
        self,
        op_type: str,
        *inputs: Tensor | None,
        dtype: torch.dtype | None = None,
        shape: Sequence[Extent] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Tensor:
        """Append a node of one output, of the type of its first input unless told otherwise."""
        first = next((one for one in inputs if one is not None), None)
        assert dtype is not None or first is not None
        (found,) = self.many(op_type, inputs, [dtype or first.dtype], domain, **attributes)  # type: ignore[union-attr]
        return found if shape is None else Tensor(found.value, found.dtype, tuple(shape))

    def many(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        dtypes: Sequence[torch.dtype],
        domain: str = "",
        **attributes: Any,
    ) -> list[Tensor]:
        """Append a node of several outputs."""
        name = self.origin
        while name in self.names:
            name = f"{self.origin}.{len(self.names)}"
        self.names[name] = self.origin
        values = [one.value if one is not None else None for one in inputs]
        while values and values[-1] is None:
            values.pop()
        given = {key: value for key, value in attributes.items() if value is not None}
        node = ir.node(op_type, values, given, domain=domain, num_outputs=len(dtypes), name=name)
        self.nodes.append(node)
        for number, (output, dtype) in enumerate(zip(node.outputs, dtypes, strict=True)):
            output.name = f"{name}:{number}"
            output.dtype = onnx_type(dtype)
        return [Tensor(output, dtype) for output, dtype in zip(node.outputs, dtypes, strict=True)]

    def from_front(self, found: Tensor) -> Tensor:
        """Say of a tensor's node that its indices count from the front alone, as in most of PyTorch's operators."""
        node = found.value.producer()
        assert node is not None
        node.metadata_props[FROM_FRONT] = ""
        return found

    # ---- Constants ----

    def array(self, values: np.ndarray, dtype: torch.dtype) -> Tensor:
        """Return a constant with the elements of an array, stored as ``dtype``."""
        name = f"constant_{len(self.constants)}"
        array = values.astype(onnx_type(dtype).numpy())
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(ONNX_TYPES[dtype]))
        value.const_value = ir.Tensor(array, dtype=ONNX_TYPES[dtype], name=name)
        self.constants[name] = value
        return Tensor(value, dtype, array.shape)

    def constant(self, value: float | bool, dtype: torch.dtype) -> Tensor:
        """Return a constant of rank 0; a SymInt is one of the symbols' values."""
        if isinstance(value, torch.SymInt):
            return self.cast(self.squeezed(self.extent(value)), dtype)
        require(isinstance(value, bool | int | float), f"a {type(value).__name__} is no number that is known here")
        onnx_type(dtype)
        if dtype not in FLOATS and dtype != torch.bool:
            require(isinstance(value, int) or float(value).is_integer(), f"{value} is no {dtype}")
            kind = torch.iinfo(dtype)
            require(kind.min <= value <= kind.max, f"{value} is no {str(dtype).removeprefix('torch.')}")
            value = int(value)
        key = (dtype, repr(value), type(value))
        if key not in self._written:
            with np.errstate(over="ignore"):
                self._written[key] = self.array(np.asarray(value), dtype).value
        return Tensor(self._written[key], dtype, ())

    def integers(self, values: Sequence[int]) -> Tensor:
        """Return int64 numbers as a constant of one axis; refuse those that vary."""
        require(not any(isinstance(one, torch.SymInt) for one in values), "a number that is not known before the call")
        key = tuple(values)
        if key not in self._written:
            self._written[key] = self.array(np.asarray(values, np.int64).reshape(-1), torch.int64).value
        return Tensor(self._written[key], torch.int64, (len(key),))

    # ---- Extents ----

    def extents(self, values: Sequence[Extent]) -> Tensor:
        """Return extents as an int64 tensor of one axis."""
        if not is_symbolic(values):
            return self.integers(values)
        parts = [self.extent(one) for one in values]
        return self.concatenated(parts)

    def extent(self, value: Extent) -> Tensor:
        """Return an extent as an int64 tensor of one element."""
        if isinstance(value, int):
            return self.integers([value])
        return self._expression(value.node.expr)

    def _expression(self, expression: sympy.Expr) -> Tensor:
        if expression not in self._written:
            self._written[expression] = self._arithmetic(expression).value
        return Tensor(self._written[expression], torch.int64, (1,))

    def _arithmetic(self, expression: sympy.Expr) -> Tensor:
        """Return an expression over symbols; refuse what has no operator of integers."""
        from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

        if expression.is_Integer:
            return self.integers([int(expression)])
        if isinstance(expression, sympy.Symbol):
            require(expression in self.symbols, f"nothing that comes in has the extent {expression}")
            return Tensor(self.symbols[expression], torch.int64, (1,))
        if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and expression.exp > 0:
            return self._joined("Mul", [expression.base] * int(expression.exp))
        if isinstance(expression, FloorDiv):
            top, bottom = expression.args
            require(top.is_nonnegative and bottom.is_positive, f"the sign of {expression} is not known")
        operators = {sympy.Add: "Add", sympy.Mul: "Mul", FloorDiv: "Div", Mod: "Mod", PythonMod: "Mod", Max: "Max"}
        op_type = {**operators, Min: "Min"}.get(type(expression))
        require(op_type, f"extents are computed with {type(expression).__name__}")
        return self._joined(str(op_type), list(expression.args))

    def _joined(self, op_type: str, parts: list[sympy.Expr]) -> Tensor:
        found = self._expression(parts[0])
        for one in parts[1:]:
            found = self.op(op_type, found, self._expression(one))
        return found

    # ---- What most rows need ----

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return a tensor with another element type."""
        if x.dtype == dtype:
            return x
        saturate = 0 if dtype in EIGHTHS else None  # what is too large becomes no number, as in PyTorch
        return self.op("Cast", x, dtype=dtype, to=onnx_type(dtype).value, saturate=saturate, shape=x.shape)

    def operand(self, x: Tensor | Any, dtype: torch.dtype) -> Tensor:
        """Return a tensor or number as a tensor of ``dtype``."""
        return self.cast(x, dtype) if isinstance(x, Tensor) else self.constant(x, dtype)

    def concatenated(self, parts: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Return tensors one behind the other along an axis."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def reshaped(self, x: Tensor, extents: Sequence[Extent]) -> Tensor:
        """Return the elements in another shape."""
        return self.op("Reshape", x, self.extents(list(extents)), allowzero=1, shape=extents)

    def transposed(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """Return a tensor with its axes in another order."""
        shape = None if x.shape is None else [x.shape[axis] for axis in order]
        if list(order) == sorted(order):
            return x
        return self.op("Transpose", x, perm=list(order), shape=shape)

    def expanded(self, x: Tensor, extents: Sequence[Extent]) -> Tensor:
        """Return a tensor broadcast to a shape."""
        return self.op("Expand", x, self.extents(list(extents)), shape=extents)

    def squeezed(self, x: Tensor, axes: Sequence[int] = (0,)) -> Tensor:
        """Return a tensor without some axes of one element."""
        left = None if x.shape is None else [one for axis, one in enumerate(x.shape) if axis not in axes]
        return self.op("Squeeze", x, self.integers(axes), shape=left) if axes else x

    def unsqueezed(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return a tensor with axes of one element at these places of the result."""
        shape = None
        if x.shape is not None:
            rest = iter(x.shape)
            shape = [1 if axis in axes else next(rest) for axis in range(len(x.shape) + len(axes))]
        return self.op("Unsqueeze", x, self.integers(axes), shape=shape) if axes else x

    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return x where the condition holds, else y."""
        return self.op("Where", condition, x, y, dtype=x.dtype)

    def compare(self, op_type: str, x: Tensor, y: Tensor) -> Tensor:
        """Return what a comparison says of two tensors of one type."""
        return self.op(op_type, x, y, dtype=torch.bool)


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    return axis % rank if rank else 0


def axes_of(axes: int | Sequence[int] | None, rank: int) -> list[int]:
    """Return axes counted from the front; all of them for None and for none; a scalar has none."""
    if not rank:
        return []
    if axes is None or (not isinstance(axes, int) and not axes):
        return list(range(rank))
    return sorted(axis_of(one, rank) for one in ([axes] if isinstance(axes, int) else axes))


def wide(values: Sequence[int], axes: int) -> list[int]:
    """Return one number for each axis of an image, of one for all of them."""
    return list(values) * (axes if len(values) == 1 else 1)
