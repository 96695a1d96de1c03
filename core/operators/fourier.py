"""Discrete Fourier transforms: DFT and STFT, as products along the factors of the length.

With ``n = r m`` the transform is ``m`` of length ``r``, factors, and ``r`` of length ``m`` (Cooley and Tukey 1965).
Stage ``t`` has real and imaginary parts of shape [..., K, J], where K numbers what is transformed already and J what is
left: ``S'[K + |K| k, j] = sum over i < r of S[K, m i + j] w^(k (m i + j))``, ``w`` a root of unity. No order of bits
is left to turn back, and every factor of the length is a radix: of a prime there is one, the transform itself. Sums are
in float64, for what cancels in a spectrum is to be 0 to the last bit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from graft.core.model.view import NodeView
from graft.core.operators import build as b
from graft.core.operators.cost import per_output
from graft.core.operators.elementwise import bound
from graft.core.operators.manipulation import integers, normal_axis
from graft.core.operators.table import OPERATORS, Lowering, Operator, Trait
from graft.core.operators.varying import varying_axis
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.types import FLOATS

Indices = Sequence[Expression]
Part = Callable[[Indices, Expression], Expression]
"""The real or imaginary part of what is transformed: by the leading indices and the place along the axis."""
KIND = "float64"
RADICES = (8, 4, 2, 3, 5, 7)


def radices(length: int) -> list[int]:
    """Return factors of a length, large ones first where they are small enough to be summed directly."""
    found: list[int] = []
    for radix in RADICES:
        while length % radix == 0 and length > 1:
            found.append(radix)
            length //= radix
    factor = 11
    while length > 1:
        factor = factor if factor * factor <= length else length
        if length % factor == 0:
            found.append(factor)
            length //= factor
        else:
            factor += 2
    return found or [1]


def _table(lowering: Lowering, length: int, name: str) -> Stage:
    """Return cosines or sines of all multiples of the angle."""

    def value(i: Indices) -> Expression:
        return b.intrinsic(name, b.multiply(b.cast(i[0], KIND), 2 * math.pi / length))

    return b.compute(lowering.temporary(KIND, (length,)), value)


def transform(
    lowering: Lowering, leading: tuple[b.Count, ...], length: int, parts: tuple[Part, Part | None],
    *, inverse: bool,
) -> tuple[list[Stage], Buffer, Buffer]:  # fmt: skip
    """Return the stages of transforms of a length, and the buffers of their parts, of shape [*leading, length, 1]."""
    cosines, sines = (_table(lowering, length, name) for name in ("cos", "sin"))
    stages = [cosines, sines]
    real, imaginary = parts
    done, left = 1, length
    for radix in radices(length):
        rest = left // radix
        shape = (*leading, done * radix, rest)
        buffers = [lowering.temporary(KIND, shape) for _ in range(2)]
        for number, buffer in enumerate(buffers):

            def term(
                i: Indices, k: Indices, number: int = number, real: Part = real, imaginary: Part | None = imaginary,
                done: int = done, left: int = left, rest: int = rest,
            ) -> Expression:  # fmt: skip
                place = b.add(b.multiply(k[0], rest), i[-1])
                own = [*i[:-2], b.modulo(i[-2], done)] if done > 1 else [*i[:-2]]
                turns = b.multiply(b.multiply(b.divide(i[-2], done), place), length // left)
                angle = b.modulo(turns, length)
                cosine, sine = b.load(cosines.buffer, angle), b.load(sines.buffer, angle)
                x = real(own, place)
                if imaginary is None:
                    return b.multiply(x, cosine if number == 0 else sine if inverse else b.unary("neg", sine))
                y = imaginary(own, place)
                if number == 0:
                    return b.binary("sub" if inverse else "add", b.multiply(x, cosine), b.multiply(y, sine))
                return b.binary("add" if inverse else "sub", b.multiply(y, cosine), b.multiply(x, sine))

            stages.append(b.reduce(buffer, "add", [radix], term))

        def part(buffer: Buffer) -> Part:
            return lambda i, place: b.load(buffer, *i, place)

        real, imaginary = part(buffers[0]), part(buffers[1])
        done, left = done * radix, rest
    return stages, buffers[0], buffers[1]


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

    stages, *buffers = transform(lowering, leading, length, (real, imaginary if parts == 2 else None), inverse=inverse)
    return stages, _joined(lowering.output(), buffers, axis, 1 / length if inverse else None)


def _joined(
    target: Buffer, buffers: Sequence[Buffer], axis: int, factor: float | None
) -> Callable[[Indices], Expression]:
    """The parts side by side along the last axis, where the result has both."""
    (parts,) = b.numbers(target, len(target.shape) - 1)

    def value(i: Indices) -> Expression:
        place = [*i[:axis], *i[axis + 1 : -1], i[axis], b.index(0)]
        result = b.load(buffers[0], *place)
        if parts == 2:
            result = b.select(b.equal(i[-1], 0), result, b.load(buffers[1], *place))
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
OPERATORS.add(Operator("DFT", FOURIER, _lower_dft, per_output(80), _accept_dft, varies=_dft_varies))

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
    stages, *buffers = transform(lowering, b.counts(target)[:2], length, parts, inverse=False)
    return stages, _joined(target, buffers, 2, None)


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


OPERATORS.add(Operator("STFT", FOURIER, _lower_stft, per_output(80), _accept_stft, varies=_stft_varies))
