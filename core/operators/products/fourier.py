"""DFT and STFT: rows over the fast Fourier transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.adjoint import through
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.definition.varying import varying_axis
from graft.core.operators.elementwise.arithmetic import bound
from graft.core.operators.movement.manipulation import integers
from graft.core.operators.products import derivatives as derivative
from graft.core.operators.products import shapes
from graft.core.operators.products.fast_fourier import KIND, Indices, Parts, transform
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.types import FLOATS

# ---- DFT ----------------------------------------------------------------------------------------------------------


def _axes(node: NodeView) -> list[int]:
    """Return the axis, an attribute before opset 20 and then an input; where that is computed all that it may be."""
    source, given, target = node.inputs[0], node.input(2), node.outputs[0]
    rank = 0 if source is None or source.rank is None else source.rank
    if given is None:
        return [normal_axis(node.attribute("axis", -2), rank)]
    known = integers(given.constant)
    if known is not None:
        return [normal_axis(known[0], rank)]
    inner, outer = (() if source is None else source.shape or ()), target.shape or ()
    others = [[one for one in range(rank - 1) if one != axis] for axis in range(rank - 1)]
    return [axis for axis, rest in enumerate(others) if all(inner[one] == outer[one] for one in rest)]


def _length(node: NodeView, axis: int) -> int | None:
    """Return the number of points that are transformed, None where it is not known."""
    source, given, target = node.inputs[0], node.input(1), node.outputs[0]
    known = None if given is None else integers(given.constant)
    if known is not None:
        return known[0]
    whole = not node.attribute("onesided", 0) or node.attribute("inverse", 0)
    extents = target if whole else source if given is None else None
    extent = None if extents is None or extents.shape is None else extents.shape[axis]
    return extent if isinstance(extent, int) else None


def _lower_dft(lowering: Lowering) -> tuple[Stage, ...]:
    """Transforms along the axis; along each that it may be where it is computed, and the wanted one of them."""
    target, axes = lowering.output(), _axes(lowering.node)
    if len(axes) == 1:
        stages, value = _transformed(lowering, axes[0])
        return (*stages, b.compute(target, value))
    wanted = b.cast(bound(lowering, 2), "int64")
    wanted = b.select(b.less(wanted, 0), b.add(wanted, len(target.shape)), wanted)
    stages, found = [], None
    for axis in axes:
        own, value = _transformed(lowering, axis)
        result = b.compute(lowering.temporary(target.dtype, b.counts(target)), value)
        stages += [*own, result]
        found = [*(found or ()), (axis, result.buffer)]
    assert found is not None, lowering.node.where

    def chosen(i: Indices) -> Expression:
        value = b.load(found[0][1], *i)
        for axis, buffer in found[1:]:
            value = b.select(b.equal(wanted, axis), b.load(buffer, *i), value)
        return value

    return (*stages, b.compute(target, chosen))


def _transformed(lowering: Lowering, axis: int) -> tuple[list[Stage], Callable[[Indices], Expression]]:
    source, node = lowering.input(0), lowering.node
    length = _length(node, axis)
    assert length is not None, node.where
    inverse = bool(node.attribute("inverse", 0))
    mirrored = inverse and bool(node.attribute("onesided", 0))
    shape = b.counts(source)
    leading = (*shape[:axis], *shape[axis + 1 : -1])
    (parts,) = b.numbers(source, len(shape) - 1)

    def at(i: Indices, place: Expression, part: int) -> Expression:
        index = [*i[:axis], place, *i[axis:], b.index(part)]
        return b.cast(b.masked_load(source, index, [b.less(place, b.extent(shape[axis]))]), KIND)

    def real(i: Indices, place: Expression) -> Expression:
        return at(i, b.minimum(place, b.subtract(b.index(length), place)) if mirrored else place, 0)

    def imaginary(i: Indices, place: Expression) -> Expression:
        if not mirrored:
            return at(i, place, 1)
        other = b.subtract(b.index(length), place)
        value = at(i, b.minimum(place, other), 1)
        return b.select(b.greater(place, other), b.unary("neg", value), value)

    stages, found = transform(lowering, leading, length, (real, imaginary if parts == 2 else None), inverse=inverse)
    return stages, _joined(lowering.output(), found, axis, 1 / length if inverse else None)


def _joined(target: Buffer, found: Parts, axis: int, factor: float | None) -> Callable[[Indices], Expression]:
    """The parts side by side along the last axis, where the result has both."""
    (parts,) = b.numbers(target, len(target.shape) - 1)
    real, imaginary = found
    assert imaginary is not None, "a spectrum has two parts"

    def value(i: Indices) -> Expression:
        leading = [*i[:axis], *i[axis + 1 : -1]]
        result = real(leading, i[axis])
        if parts == 2:
            result = b.select(b.equal(i[-1], 0), result, imaginary(leading, i[axis]))
        return result if factor is None else b.multiply(result, factor)

    return value


def _accept_dft(node: NodeView) -> Reject | None:
    if node.dtype not in FLOATS:
        return Reject("dtype", f"DFT of {node.dtype}; floats are lowered")
    axes = _axes(node)
    if not axes or any(not _length(node, axis) for axis in axes):
        return Reject("constant-required", "the length of DFT is not known")
    return None


def _dft_varies(node: NodeView) -> Reject | None:
    """Take any extents but that of the axis and the number of parts."""
    source = node.inputs[0]
    assert source is not None, node.where
    shape = source.shape or ()
    for place in (*_axes(node), len(shape) - 1):
        if not isinstance(shape[place], int):
            return varying_axis(node, source, place)
    return None


FOURIER = frozenset({Trait.CONTRACTION})
define(
    "DFT", FOURIER, _lower_dft, per_output(80), _accept_dft, varies=_dft_varies, shapes=shapes.fourier_transform,
    attributes=(check.constant_axis(2),), vjp=derivative.fourier,
)  # fmt: skip

# ---- STFT ---------------------------------------------------------------------------------------------------------


def _frame_lengths(node: NodeView) -> list[int]:
    """Return the points of a frame, as given or those of the window; all that they may be if they are computed.

    Half a spectrum of m numbers is that of 2 m - 2 points, or of 2 m - 1.
    """
    window, given = node.input(2), node.input(3)
    known = None if given is None else integers(given.constant)
    if known is not None:
        return known[:1]
    extent = None if window is None or window.shape is None else window.shape[0]
    if isinstance(extent, int):
        return [extent]
    bins = (node.outputs[0].shape or (None, None, None))[2]
    if given is None or not isinstance(bins, int):
        return []
    return [bins * 2 - 2, bins * 2 - 1] if node.attribute("onesided", 1) and bins > 1 else [bins]


def _lower_stft(lowering: Lowering) -> tuple[Stage, ...]:
    """Transforms of the frames, each as far behind the one before as the step says, times the window."""
    target, lengths = lowering.output(), _frame_lengths(lowering.node)
    if len(lengths) == 1:
        stages, value = _framed(lowering, lengths[0])
        return (*stages, b.compute(target, value))
    (first, short), (second, long) = (_framed(lowering, length) for length in lengths)
    results = [b.compute(lowering.temporary(target.dtype, b.counts(target)), value) for value in (short, long)]
    is_short = b.equal(b.cast(bound(lowering, 3), "int64"), lengths[0])

    def chosen(i: Indices) -> Expression:
        return b.select(is_short, *(b.load(result.buffer, *i) for result in results))

    return (*first, *second, *results, b.compute(target, chosen))


def _framed(lowering: Lowering, length: int) -> tuple[list[Stage], Callable[[Indices], Expression]]:
    source, window, target = lowering.input(0), lowering.optional(2), lowering.output()
    step = b.cast(bound(lowering, 1), "int64")
    extent, rank = b.counts(source)[1], len(source.shape)

    def at(i: Indices, place: Expression, part: int) -> Expression:
        where = b.add(b.multiply(i[1], step), place)
        value = b.cast(b.masked_load(source, [i[0], where, b.index(part)][:rank], b.inside(where, extent)), KIND)
        return value if window is None else b.multiply(value, b.cast(b.load(window, place), KIND))

    def real(i: Indices, place: Expression) -> Expression:
        return at(i, place, 0)

    def imaginary(i: Indices, place: Expression) -> Expression:
        return at(i, place, 1)

    parts = real, imaginary if rank == 3 and b.numbers(source, 2)[0] == 2 else None
    stages, found = transform(lowering, b.counts(target)[:2], length, parts, inverse=False)
    return stages, _joined(target, found, 2, None)


def _accept_stft(node: NodeView) -> Reject | None:
    if node.dtype not in FLOATS:
        return Reject("dtype", f"STFT of {node.dtype}; floats are lowered")
    if not all(lengths := _frame_lengths(node)) or not lengths:
        return Reject("constant-required", "the length of STFT's frames is not known")
    return None


def _stft_varies(node: NodeView) -> Reject | None:
    """Take any batch, length of the signal and number of frames."""
    source = node.inputs[0]
    assert source is not None, node.where
    shape = source.shape or ()
    return varying_axis(node, source, 2) if len(shape) == 3 and not isinstance(shape[2], int) else None


def _stft_demands(node: NodeView) -> Iterator[Equation]:
    """A factor for each point of a frame, and a signal of one frame at least."""
    length = demand.numbers_in(node, 3)
    points = length[0] if length else demand.operand(node, 2, 0)
    yield from demand.equation(demand.operand(node, 2, 0), points)
    yield from demand.equation(points, demand.operand(node, 0, 1), "at most")


define(
    "STFT", FOURIER, _lower_stft, per_output(80), _accept_stft, varies=_stft_varies, demands=_stft_demands,
    shapes=shapes.short_time_transform, vjp=through(derivative.frames),
)  # fmt: skip
