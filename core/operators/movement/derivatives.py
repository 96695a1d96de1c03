"""Derivatives of operators that move elements: each element's gradient goes back to where it came from.

What was taken twice sums: gathers become scatters that add, in the order of the elements, so the bits are the same
whoever computes them.
"""

from __future__ import annotations

import numpy as np
from onnx import TypeProto

from graft.core.operators.definition.adjoint import Adjoint, Vjp, each


def by(operator: str, *attributes: str) -> Vjp:
    """Return the rule of a move that another operator undoes, with the same attributes."""
    return each(lambda f: f(operator, f.gradient, **f.attributes(*attributes)))


def _back(f: Adjoint, moved: list[str], number: int = 0) -> list[str]:
    """Return gradients of which one is known to be in the shape of its input."""
    return [*[""] * number, *(f.typed(one, f.input(number)) for one in moved)]


def transposed(f: Adjoint) -> list[str]:
    """By the inverse order."""
    rank = f.rank(f.input(0))
    order = f.attribute("perm") or list(reversed(range(rank)))
    return _back(f, [f.transposed(f.gradient, *(order.index(axis) for axis in range(rank)))])


def triangle(f: Adjoint) -> list[str]:
    """The same triangle of the gradient."""
    return [f("Trilu", f.gradient, *f.inputs[1:], **f.attributes("upper"))]


def expanded(f: Adjoint) -> list[str]:
    """Summed over the axes along which the input was repeated."""
    return [f.summed(f.gradient, f.input(0))]


def tiled(f: Adjoint) -> list[str]:
    """Summed over the copies, each axis of the gradient taken as copies of the input's."""
    x, rank = f.input(0), f.rank(f.input(0))
    if not rank:
        return [f.gradient]
    pairs = f.concatenated(f.unsqueezed(f.input(1), 1), f.unsqueezed(f("Shape", x), 1), axis=1)
    copies = f("Reshape", f.gradient, f("Reshape", pairs, f.ints(2 * rank)))
    return _back(f, [f("ReduceSum", copies, f.ints(*range(0, 2 * rank, 2)), keepdims=0)])


def concatenated(f: Adjoint) -> list[str]:
    """Each input has its part."""
    axis = f.attribute("axis") % f.rank(f.result())
    if len(f.inputs) == 1:
        return [f.gradient]
    sizes = f.concatenated(*[f.extent(name, axis) for name in f.inputs], axis=0)
    parts = f.several(len(f.inputs), "Split", f.gradient, sizes, axis=axis)
    return [f.typed(part, name) for part, name in zip(parts, f.inputs, strict=True)]


def split(f: Adjoint) -> list[str]:
    """The parts one behind the other; zeros for what nobody reads."""
    count = len(f.node.output)
    return _back(f, [f.concatenated(*map(f.upstream, range(count)), axis=f.attribute("axis", 0))])


def sliced(f: Adjoint) -> list[str]:
    """Each axis is put back where the same slice of its positions says."""
    x, rank = f.input(0), f.rank(f.input(0))
    if (pads := _pads_of_slice(f)) is not None:
        return _back(f, [f("Pad", f.gradient, f.ints(*pads))])
    starts, ends, axes, steps = (f.input(number) for number in range(1, 5))
    given = f.numbers(axes) if axes else list(range(f.extents(starts)[0]))
    f.require(given is not None, "its derivative needs axes that are constants")
    assert given is not None
    gradient = f.gradient
    for number, axis in enumerate(given):
        parts = [f.sliced(one, 0, number, number + 1) if one else "" for one in (starts, ends, steps)]
        places = f("Slice", f.counted(f.extent(x, axis)), parts[0], parts[1], f.ints(0), *filter(None, parts[2:]))
        gradient = f.along(gradient, axis % rank, places, x)
    return _back(f, [gradient])


def _pads_of_slice(f: Adjoint) -> list[int] | None:
    """Return how many elements a slice of steps of 1 leaves out on all sides, None where that is not known."""
    starts, ends, axes, steps = (f.numbers(f.input(number)) for number in range(1, 5))
    shape = f.shape(f.input(0))
    if starts is None or ends is None or (f.input(3) and axes is None) or (f.input(4) and set(steps or ()) != {1}):
        return None
    before, behind = [0] * len(shape), [0] * len(shape)
    for start, end, axis in zip(starts, ends, axes if f.input(3) and axes else range(len(starts)), strict=True):
        extent = shape[axis]
        if not isinstance(extent, int):
            return None
        low, high, _ = slice(start, end).indices(extent)
        before[axis], behind[axis] = low, extent - max(high, low)
    return [*before, *behind]


def padded(f: Adjoint) -> list[str]:
    """What was added is cut off; copies of elements at the edge are added to them, and constants to their number."""
    x, pads, rank = f.input(0), f.input(1), f.rank(f.input(0))
    mode, axes = f.attribute("mode", "constant"), f.input(3)
    if mode == "constant":
        minus = f("Neg", pads)
        inner = f("Pad", f.gradient, minus, "", axes) if axes else f("Pad", f.gradient, minus)
        inner = f.typed(inner, x)
        if not f.input(2) or not f.wanted(2):
            return [inner]
        kept = f("Pad", f.filled(1.0, x), pads, "", *([axes] if axes else []))
        border = f("Mul", f.gradient, f("Sub", f.like(1.0, x), kept))
        return [inner, "", f.reshaped_like(f("ReduceSum", border, keepdims=0), f.input(2))]
    given = f.numbers(axes) if axes else list(range(rank))
    f.require(given is not None, "its derivative needs axes that are constants")
    assert given is not None
    gradient, count = f.gradient, len(given)
    for number, axis in enumerate(given):
        sides = f.concatenated(*(f.sliced(pads, 0, one, one + 1) for one in (number, number + count)), axis=0)
        places = f("Pad", f.counted(f.extent(x, axis)), sides, mode=mode)
        gradient = f.along(gradient, axis % rank, places, x)
    return _back(f, [gradient])


# ---- By index -----------------------------------------------------------------------------------------------------


def gathered(f: Adjoint) -> list[str]:
    """Slices are added where they were taken from."""
    x, indices = f.input(0), f.input(1)
    axis = f.attribute("axis", 0) % f.rank(x)
    if axis == 0:
        zeros = f.filled(0.0, x)
        return _back(f, [f("ScatterND", zeros, f.unsqueezed(_int64(f, indices), -1), f.gradient, reduction="add")])
    shape = f("Shape", x)
    parts = [f.sliced(shape, 0, 0, axis), f.ints(-1)]
    parts += [f.sliced(shape, 0, axis + 1, f.rank(x))] if axis + 1 < f.rank(x) else []
    gradient = f("Reshape", f.gradient, f.concatenated(*parts, axis=0))
    places = f.reshaped(_int64(f, indices), -1)
    f.types[gradient] = _with_extent(f, x, axis, places)
    return _back(f, [f.along(gradient, axis, places, x)])


def _with_extent(f: Adjoint, x: str, axis: int, places: str) -> TypeProto:
    """Return the type of a value with another extent along an axis."""
    kind = TypeProto()
    kind.CopyFrom(f.types[x])
    kind.tensor_type.shape.dim[axis].CopyFrom(f.types[places].tensor_type.shape.dim[0])
    return kind


def _int64(f: Adjoint, indices: str) -> str:
    return f("Cast", indices, to=7)


def gathered_elements(f: Adjoint) -> list[str]:
    """Elements are added where they were taken from."""
    return [_scattered(f, f.gradient, f.input(1), f.attribute("axis", 0))]


def _scattered(f: Adjoint, gradient: str, indices: str, axis: int) -> str:
    return f("ScatterElements", f.filled(0.0, f.input(0)), indices, gradient, axis=axis, reduction="add")


def gathered_slices(f: Adjoint) -> list[str]:
    """Slices are added where their tuples say, of the same batch."""
    indices = f.input(1)
    for axis in reversed(range(f.attribute("batch_dims", 0))):
        own = f("Expand", _column(f, axis, indices), f.concatenated(f("Shape", indices, end=-1), f.ints(1), axis=0))
        indices = f.concatenated(own, indices, axis=-1)
    return [f("ScatterND", f.filled(0.0, f.input(0)), indices, f.gradient, reduction="add")]


def _column(f: Adjoint, axis: int, indices: str) -> str:
    """Return the positions along an axis as an axis among as many as the indices have."""
    count = f.counted(f.extent(indices, axis))
    others = [one for one in range(f.rank(indices)) if one != axis]
    return f.unsqueezed(count, *others) if others else count


def scattered_elements(f: Adjoint) -> list[str]:
    """By the reduction: `_of_scattered`."""
    axis = f.attribute("axis", 0)
    return _of_scattered(
        f,
        lambda value: f("GatherElements", value, f.input(1), axis=axis),
        lambda value, updates, how: f("ScatterElements", value, f.input(1), updates, axis=axis, reduction=how),
    )


def scattered_slices(f: Adjoint) -> list[str]:
    """By the reduction: `_of_scattered`."""
    return _of_scattered(
        f,
        lambda value: f("GatherND", value, f.input(1)),
        lambda value, updates, how: f("ScatterND", value, f.input(1), updates, reduction=how),
    )


def _of_scattered(f: Adjoint, taken, put) -> list[str]:  # type: ignore[no-untyped-def]
    """Return the gradients of data and updates.

    What was replaced has none; of a product each factor has what all others make, which no factor may be 0 for; those
    that are the extreme share evenly.
    """
    x, updates, y, how = f.input(0), f.input(2), f.result(), f.attribute("reduction", "none")
    if how == "add":
        return [f.gradient, "", taken(f.gradient)]
    if how == "none":
        return [put(f.gradient, f.filled(0.0, updates), "none"), "", taken(f.gradient)]
    if how == "mul":
        whole = f("Mul", f.gradient, y)
        return [f("Div", whole, x), "", f("Div", taken(whole), updates)]
    mine = f.where(f("Equal", x, y), y)
    theirs = f.where(f("Equal", updates, taken(y)), y)
    share = f("Div", f.gradient, put(mine, theirs, "add"))
    return [f("Mul", share, mine), "", f("Mul", taken(share), theirs)]


def one_hot(f: Adjoint) -> list[str]:
    """The values for off and on have the sums of what lies where they do."""
    depth, values = f.input(1), f.input(2)
    marks = f.constant(np.array([0.0, 1.0]))
    hot = f("OneHot", f.input(0), depth, f("Cast", marks, to=f.dtype(values)), **f.attributes("axis"))
    on = f("ReduceSum", f("Mul", f.gradient, hot), keepdims=0)
    off = f("Sub", f("ReduceSum", f.gradient, keepdims=0), on)
    return ["", "", f.concatenated(*(f("Unsqueeze", one, f.ints(0)) for one in (off, on)), axis=0)]


def reversed_sequence(f: Adjoint) -> list[str]:
    """Reversed again."""
    return [f("ReverseSequence", f.gradient, f.input(1), **f.attributes("batch_axis", "time_axis"))]


def blocks_back(f: Adjoint) -> list[str]:
    """DepthToSpace: pixels go back to their channels, which SpaceToDepth has in one order alone before opset 28."""
    size = f.attribute("blocksize")
    if f.attribute("mode", "DCR") == "DCR":
        return [f("SpaceToDepth", f.gradient, blocksize=size)]
    height, width = (f.extent(f.input(0), axis) for axis in (2, 3))
    block = f.ints(size)
    pixels = f("Reshape", f.gradient, f.concatenated(f.ints(0, 0), height, block, width, block, axis=0))
    return [f.reshaped_like(f.transposed(pixels, 0, 1, 3, 5, 2, 4), f.input(0))]


def compressed(f: Adjoint) -> list[str]:
    """Slices go back to the places of what holds."""
    x, axis = f.input(0), f.attribute("axis")
    places = f("Squeeze", f("NonZero", f.input(1)), f.ints(0))
    if axis is not None:
        return [f.along(f.gradient, axis, places, x)]
    flat = f.reshaped(x, -1)
    return [f.reshaped_like(f.along(f.gradient, 0, places, flat), x)]


# ---- In order -----------------------------------------------------------------------------------------------------


def cumulated(f: Adjoint) -> list[str]:
    """Summed from the other end."""
    backwards = 1 - f.attribute("reverse", 0)
    return [f("CumSum", f.gradient, f.input(1), exclusive=f.attribute("exclusive", 0), reverse=backwards)]


def greatest(f: Adjoint) -> list[str]:
    """Those chosen have the gradients of their ranks."""
    return [_scattered(f, f.gradient, f.result(1), f.attribute("axis", -1))]


def cached(f: Adjoint) -> list[str]:
    """The window of the cache has the gradient of the update, the rest that of the cache."""
    cache, update, starts, rank = f.input(0), f.input(1), f.input(2), f.rank(f.input(0))
    axis = f.attribute("axis", -2) % rank
    given = [starts] if starts else []
    zeros = f.filled(0.0, update)
    rest = f("TensorScatter", f.gradient, zeros, *given, axis=axis, mode=f.attribute("mode", "linear"))
    place = f.counted(f.extent(update, axis))
    if starts:
        place = f("Add", f.unsqueezed(starts, 1), place)
    if f.attribute("mode", "linear") == "circular":
        place = f("Mod", place, f.extent(cache, axis))
    others = [one for one in range(rank) if one != axis and not (one == 0 and starts)]
    wide = f("Expand", f.unsqueezed(place, *others), f("Shape", update))
    return [rest, f("GatherElements", f.gradient, wide, axis=axis)]
