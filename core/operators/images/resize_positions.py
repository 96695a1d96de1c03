"""Where an element of a resized dimension lies in the image, and what is taken outside of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Expression
from graft.core.types import INTEGERS

Indices = Sequence[Expression]
Number: TypeAlias = float | Expression


def known(number: Number) -> float:
    """Return a scale or an end of a region that is known when the kernel is made."""
    assert isinstance(number, float), number
    return number


def real(number: b.Extent | Number) -> Expression:
    """Return a number as an expression of type float64."""
    return b.constant(number, "float64") if isinstance(number, int | float) else b.cast(number, "float64")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One resized dimension: extents, the scale (output over input), the region of ``tf_crop_and_resize``.

    What is known only when a kernel runs is an expression, the scale and the region of type float64.
    """

    axis: int
    source: b.Extent
    target: b.Extent
    scale: Number
    start: Number = 0.0
    end: Number = 1.0

    @property
    def is_static(self) -> bool:
        """Whether all of it is known."""
        are_numbers = isinstance(self.source, int) and isinstance(self.target, int)
        return are_numbers and all(isinstance(one, float) for one in (self.scale, self.start, self.end))

    @property
    def last(self) -> int:
        """The last position of the input, whose extent is a number."""
        assert isinstance(self.source, int), f"axis {self.axis} has no number"
        return self.source - 1

    @property
    def length(self) -> float:
        """The output's extent before it is rounded down: what ``align_corners`` aligns."""
        return known(self.scale) * (self.last + 1)


def original_place(node: NodeView, d: Dimension, place: Expression) -> Expression:
    """The position in the input, float64, of output element ``place`` (ONNX: coordinate_transformation_mode)."""
    x = b.cast(place, "float64")
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        return b.divide(x, d.scale)
    half = b.subtract(b.divide(b.add(x, 0.5), d.scale), 0.5)
    if mode == "pytorch_half_pixel":
        if not isinstance(d.target, int):
            return b.select(b.greater(d.target, 1), half, b.constant(0.0, "float64"))
        return half if d.target > 1 else b.constant(0.0, "float64")
    if mode not in ("align_corners", "half_pixel_symmetric", "tf_crop_and_resize"):
        return half
    return _by_extents(mode, d, x, half) if d.is_static else _by_varying_extents(mode, d, x, half)


def _by_extents(mode: str, d: Dimension, x: Expression, half: Expression) -> Expression:
    """The position by the modes that look at extents; ``half`` is that of ``half_pixel``."""
    if mode == "align_corners":
        return b.multiply(x, d.last / (d.length - 1)) if d.length > 1 else b.constant(0.0, "float64")
    if mode == "half_pixel_symmetric":
        assert isinstance(d.target, int), f"axis {d.axis} has no number"
        adjustment = d.target / d.length
        return b.add(half, (d.last + 1) / 2 * (1 - adjustment))
    start, end = known(d.start), known(d.end)
    if d.length <= 1:
        return b.constant((start + end) * d.last / 2, "float64")
    step = (end - start) * d.last / (d.length - 1)
    return b.add(b.multiply(x, step), start * d.last)


def _by_varying_extents(mode: str, d: Dimension, x: Expression, half: Expression) -> Expression:
    """The same where an extent, the scale or the region is known only when the kernel runs."""
    source = real(d.source)
    last, length = b.subtract(source, 1.0), b.multiply(real(d.scale), source)
    if mode == "half_pixel_symmetric":
        adjustment = b.divide(real(d.target), length)
        return b.add(half, b.multiply(b.divide(source, 2.0), b.subtract(real(1.0), adjustment)))
    several, steps = b.greater(length, 1.0), b.subtract(length, 1.0)
    if mode == "align_corners":
        return b.select(several, b.multiply(x, b.divide(last, steps)), 0.0)
    start, end = real(d.start), real(d.end)
    step = b.divide(b.multiply(b.subtract(end, start), last), steps)
    middle = b.divide(b.multiply(b.add(start, end), last), 2.0)
    return b.select(several, b.add(b.multiply(x, step), b.multiply(start, last)), middle)


def cubic_pieces(a: float) -> tuple[Callable[[Expression], Expression], Callable[[Expression], Expression]]:
    """Return Keys' cubic convolution with parameter ``a`` between distances 1 and 2, and below 1 (Keys 1981)."""

    def near(t: Expression) -> Expression:
        return b.add(b.multiply(b.multiply(b.subtract(b.multiply(t, a + 2), a + 3), t), t), 1)

    def far(t: Expression) -> Expression:
        inner = b.subtract(b.multiply(t, a), 5 * a)
        return b.subtract(b.multiply(b.add(b.multiply(inner, t), 8 * a), t), 4 * a)

    return far, near


def cubic_weights(fraction: Expression, a: float) -> list[Expression]:
    """Return the weights of cubic convolution at distances 1 + f, f, 1 - f, 2 - f."""
    far, near = cubic_pieces(a)
    rest = b.subtract(b.constant(1.0, fraction.type.dtype), fraction)
    return [far(b.add(fraction, 1)), near(fraction), near(rest), far(b.add(rest, 1))]


def filled(node: NodeView, d: Dimension, i: Indices, value: Expression, fill: float | None) -> Expression:
    """Return a value of the result, ``fill`` where its place lies outside of the image; None fills nothing."""
    if fill is None:
        return value
    x = original_place(node, d, i[d.axis])
    last = float(d.last) if isinstance(d.source, int) else b.subtract(real(d.source), 1.0)
    within = b.both(b.greater_equal(x, 0.0), b.less_equal(x, last))
    return b.select(within, value, fill)


def between(dtype: str) -> str:
    """The type in which elements of a type are interpolated; what comes out is rounded, if they are integers."""
    if dtype in ("int32", "int64", "uint32", "uint64"):
        return "float64"
    return "float32" if dtype in INTEGERS else b.wide(dtype)
