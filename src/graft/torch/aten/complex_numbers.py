"""Rows for complex numbers: ONNX has no such type, so that a tensor of them has a last axis for both parts.

Its ``shape`` is that without this axis. Complex numbers stay inside of exported models: inputs and outputs have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from graft.torch.aten import movement
from graft.torch.aten.builder import COMPLEX, Builder, Tensor, axis_of, numbers, require

aten = torch.ops.aten
Row = Callable[..., Any]
FORWARD, INVERSE = 0, 1


def _pairs(b: Builder, x: Tensor) -> Tensor:
    """Return the parts as real numbers along a last axis; those of real numbers have no imaginary one."""
    if x.dtype in COMPLEX:
        return Tensor(x.value, COMPLEX[x.dtype], (*x.extents, 2))
    return b.op("Mul", b.unsqueezed(x, [x.rank]), b.array(np.array([1, 0]), x.dtype), shape=(*x.extents, 2))


def _complex(found: Tensor, dtype: torch.dtype) -> Tensor:
    return Tensor(found.value, dtype)


def _part(b: Builder, x: Tensor, number: int) -> Tensor:
    """Return one part of pairs, with the axis of the parts."""
    cut = b.op("Slice", x, b.integers([number]), b.integers([number + 1]), b.integers([x.rank - 1]))
    return Tensor(cut.value, x.dtype, (*x.extents[:-1], 1))


def _moved(row: Row) -> Row:
    """Return the row that moves pairs as another one moves numbers; it reads no axis but what its result has."""

    def moved(b: Builder, out: Any, x: Tensor, *rest: Any, **named: Any) -> Tensor:
        real = SimpleNamespace(shape=(*out.shape, 2), dtype=COMPLEX[out.dtype])
        return _complex(row(b, real, _pairs(b, x), *rest, **named), out.dtype)

    return moved


def _along(row: Row) -> Row:
    """Return the row of pairs for one with an axis behind its tensors, which is counted from the front."""

    def along(b: Builder, out: Any, x: Tensor, axis: int = 0, *rest: Any) -> Tensor:
        return _moved(row)(b, out, x, axis_of(axis, x.rank), *rest)  # type: ignore[no-any-return]

    return along


def _put(row: Row) -> Row:
    def put(b: Builder, out: Any, x: Tensor, source: Tensor, axis: int = 0, *rest: Any) -> Tensor:
        return _moved(row)(b, out, x, _pairs(b, source), axis_of(axis, x.rank), *rest)  # type: ignore[no-any-return]

    return put


def permuted(b: Builder, out: Any, x: Tensor, order: Sequence[int]) -> Tensor:
    places = [axis_of(axis, x.rank) for axis in order]
    return _complex(b.op("Transpose", _pairs(b, x), perm=[*places, x.rank]), x.dtype)


def exchanged(b: Builder, out: Any, x: Tensor, first: int, second: int) -> Tensor:
    order = list(range(x.rank))
    first, second = axis_of(first, x.rank), axis_of(second, x.rank)
    order[first], order[second] = second, first
    return permuted(b, out, x, order)


def joined(b: Builder, out: Any, parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    place = axis_of(axis, len(out.shape))
    return _complex(b.concatenated([_pairs(b, one) for one in parts], place), out.dtype)


def filled(b: Builder, out: Any, shape: Sequence[Any], value: Any, **_: Any) -> Tensor:
    number = complex(value)
    parts = b.array(np.array([number.real, number.imag]), COMPLEX[out.dtype])
    return _complex(b.expanded(parts, [*out.shape, 2]), out.dtype)


def padded(b: Builder, out: Any, x: Tensor, pads: Sequence[int], value: Any = 0) -> Tensor:
    require(value == 0, "complex numbers beside a tensor")
    real = SimpleNamespace(shape=(*out.shape, 2), dtype=COMPLEX[out.dtype])
    return _complex(movement.padded(b, real, _pairs(b, x), [0, 0, *pads], 0), out.dtype)


def copied(b: Builder, out: Any, x: Tensor, *_: Any, **named: Any) -> Tensor:
    return _complex(b.op("Identity", _pairs(b, x)), x.dtype)


def converted(b: Builder, out: Any, x: Tensor, **_: Any) -> Tensor:
    require(out.dtype in COMPLEX, "complex numbers as real ones")
    return _complex(b.cast(_pairs(b, x), COMPLEX[out.dtype]), out.dtype)


def overwritten(b: Builder, out: Any, x: Tensor, source: Tensor, *_: Any) -> Tensor:
    return _complex(b.expanded(_pairs(b, source), [*out.shape, 2]), out.dtype)


def as_real(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("Identity", _pairs(b, x))


def as_complex(b: Builder, out: Any, x: Tensor) -> Tensor:
    return _complex(b.op("Identity", x), out.dtype)


def from_parts(b: Builder, out: Any, real: Tensor, imaginary: Tensor) -> Tensor:
    parts = [b.unsqueezed(b.expanded(one, list(out.shape)), [len(out.shape)]) for one in (real, imaginary)]
    return _complex(b.concatenated(parts, len(out.shape)), out.dtype)


def conjugate(b: Builder, out: Any, x: Tensor) -> Tensor:
    return _complex(b.op("Mul", _pairs(b, x), b.array(np.array([1, -1]), COMPLEX[x.dtype])), x.dtype)


def magnitude(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("ReduceL2", _pairs(b, x), b.integers([x.rank]), keepdims=0)


def _operand(b: Builder, x: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(x, Tensor):
        return _pairs(b, x if x.dtype in COMPLEX else b.cast(x, COMPLEX[dtype]))
    number = complex(x)
    return b.array(np.array([number.real, number.imag]), COMPLEX[dtype])


def elementwise(op_type: str) -> Row:
    """Return the row of a sum or a difference."""

    def row(b: Builder, out: Any, x: Any, y: Any, *, alpha: Any = 1) -> Tensor:
        require(alpha == 1, "a multiple of complex numbers")
        return _complex(b.op(op_type, *(_operand(b, one, out.dtype) for one in (x, y))), out.dtype)

    return row


def _real_factor(b: Builder, x: Any, dtype: torch.dtype) -> Tensor | None:
    """Return a factor without imaginary part, with an axis for the parts of the other one; None of any other."""
    if isinstance(x, Tensor):
        return None if x.dtype in COMPLEX else b.unsqueezed(b.cast(x, COMPLEX[dtype]), [x.rank])
    return None if isinstance(x, complex) else b.constant(x, COMPLEX[dtype])


def product(b: Builder, out: Any, x: Any, y: Any) -> Tensor:
    for one, other in ((x, y), (y, x)):
        if (real := _real_factor(b, one, out.dtype)) is not None:
            return _complex(b.op("Mul", _operand(b, other, out.dtype), real), out.dtype)
    return _product(b, out, "Mul", *(_operand(b, one, out.dtype) for one in (x, y)))


def quotient(b: Builder, out: Any, x: Any, y: Any) -> Tensor:
    real = _real_factor(b, y, out.dtype)
    require(real is not None, "a division by complex numbers")
    return _complex(b.op("Div", _operand(b, x, out.dtype), real), out.dtype)


def matrix_product(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
    return _product(b, out, "MatMul", _pairs(b, x), _pairs(b, y))


def _product(b: Builder, out: Any, op_type: str, x: Tensor, y: Tensor) -> Tensor:
    """Return both parts of a product of pairs: four real ones."""
    parts = [[_part(b, one, number) for number in range(2)] for one in (x, y)]
    if op_type == "MatMul":
        parts = [[b.squeezed(part, [part.rank - 1]) for part in one] for one in parts]
    (a, c), (d, e) = parts
    real = b.op("Sub", b.op(op_type, a, d), b.op(op_type, c, e))
    imaginary = b.op("Add", b.op(op_type, a, e), b.op(op_type, c, d))
    if op_type == "MatMul":
        axis = b.integers([len(out.shape)])
        real, imaginary = b.op("Unsqueeze", real, axis), b.op("Unsqueeze", imaginary, axis)
    return _complex(b.concatenated([real, imaginary], -1), out.dtype)


# ---- Fourier transforms ----


def _transformed(b: Builder, x: Tensor, axis: int, *, inverse: int = FORWARD, onesided: bool = False) -> Tensor:
    return b.op("DFT", x, None, b.constant(axis, torch.int64), inverse=inverse, onesided=int(onesided))


def _scaled(b: Builder, x: Tensor, counts: Sequence[int], mode: int, inverse: int) -> Tensor:
    """Return transforms as PyTorch scales them: by nothing, the root of the number of points, or that number.

    ONNX's inverse is divided by the number already.
    """
    power = (1.0 if inverse else 0.0) - mode / 2
    return b.op("Mul", x, b.constant(math.prod(counts) ** power, x.dtype)) if power else x


def transform(b: Builder, out: Any, x: Tensor, axes: Sequence[int], mode: int, forward: bool) -> Tensor:
    """Complex transforms along some axes."""
    places = [axis_of(axis, x.rank) for axis in axes]
    counts = numbers([x.extents[axis] for axis in places], "the number of points of a transform")
    found, inverse = _pairs(b, x), FORWARD if forward else INVERSE
    for axis in places:
        found = _transformed(b, found, axis, inverse=inverse)
    return _complex(_scaled(b, found, counts, mode, inverse), out.dtype)


def transform_of_real(b: Builder, out: Any, x: Tensor, axes: Sequence[int], mode: int, onesided: bool) -> Tensor:
    """Transforms of real numbers: the last axis first, of which half is enough, then the others."""
    places = [axis_of(axis, x.rank) for axis in axes]
    counts = numbers([x.extents[axis] for axis in places], "the number of points of a transform")
    found = _transformed(b, b.unsqueezed(x, [x.rank]), places[-1], onesided=onesided)
    for axis in places[:-1]:
        found = _transformed(b, found, axis)
    return _complex(_scaled(b, found, counts, mode, FORWARD), out.dtype)


def transform_to_real(b: Builder, out: Any, x: Tensor, axes: Sequence[int], mode: int, count: int) -> Tensor:
    """The inverse of it: what the other half of the last axis is, the conjugates of the first, is joined to that."""
    *others, last = (axis_of(axis, x.rank) for axis in axes)
    counts = numbers([*(x.extents[axis] for axis in others), count], "the number of points of a transform")
    found = _pairs(b, x)
    for axis in others:
        found = _transformed(b, found, axis, inverse=INVERSE)
    places = b.integers([last])
    half = (count + 1) // 2 - 1
    if half:
        rest = b.op("Slice", found, b.integers([half]), b.integers([0]), places, b.integers([-1]))
        found = b.concatenated([found, b.op("Mul", rest, b.array(np.array([1, -1]), found.dtype))], last)
    found = _transformed(b, found, last, inverse=INVERSE)
    cut = b.op("Slice", found, b.integers([0]), b.integers([1]), b.integers([x.rank]))
    return _scaled(b, b.op("Squeeze", cut, b.integers([x.rank])), counts, mode, INVERSE)


_RESHAPED = (
    aten._unsafe_view.default, aten.reshape.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.unsqueeze.default, aten.view.default, aten.view_copy.default,
)  # fmt: skip
ROWS: dict[Any, Row] = {
    **dict.fromkeys(_RESHAPED, _moved(movement.reshaped)),
    aten._conj.default: conjugate,
    aten._conj_physical.default: conjugate,
    aten._fft_c2c.default: transform,
    aten._fft_c2r.default: transform_to_real,
    aten._fft_r2c.default: transform_of_real,
    aten._to_copy.default: converted,
    aten.abs.default: magnitude,
    aten.add.Tensor: elementwise("Add"),
    aten.alias.default: copied,
    aten.bmm.default: matrix_product,
    aten.cat.default: joined,
    aten.clone.default: copied,
    aten.complex.default: from_parts,
    aten.constant_pad_nd.default: padded,
    aten.copy.default: overwritten,
    aten.div.Tensor: quotient,
    aten.expand.default: _moved(movement.expanded),
    aten.full.default: filled,
    aten.mm.default: matrix_product,
    aten.mul.Tensor: product,
    aten.permute.default: permuted,
    aten.select.int: _along(movement.selected),
    aten.select_scatter.default: _put(movement.put_selected),
    aten.slice.Tensor: _along(movement.sliced),
    aten.slice_scatter.default: _put(movement.put_slice),
    aten.sub.Tensor: elementwise("Sub"),
    aten.transpose.int: exchanged,
    aten.view_as_complex.default: as_complex,
    aten.view_as_real.default: as_real,
}
"""Operators that read or make complex numbers, by overload."""
