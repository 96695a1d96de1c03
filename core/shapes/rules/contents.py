"""The contents of small tensors of whole numbers: what the shape arithmetic of exporters comes to."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from graft.core.affine.expressions import (
    Ranges,
    add,
    equal,
    floordiv,
    interval,
    is_at_least,
    maximum,
    minimum,
    modulo,
    multiply,
    subtract,
)
from graft.core.operators.definition.facts import MOST_CONTENTS, Contents, ContentsRule, Dimension, Facts, normal_axis
from graft.runtime.extents import Extent


def _shape(facts: Facts) -> Contents | None:
    shape = facts.shape(0)
    if shape is None:
        return None
    part = shape[slice(facts.attribute("start", 0), facts.attribute("end"))]
    return Contents((len(part),), tuple(part))


def _size(facts: Facts) -> Contents | None:
    shape = facts.shape(0)
    if shape is None or any(extent is None for extent in shape):
        return None
    return Contents((), (multiply(*(extent for extent in shape if extent is not None)),))


def _same(facts: Facts) -> Contents | None:
    return facts.content(0)


def _cast(facts: Facts) -> Contents | None:
    """Casts between whole numbers and floats keep them; a truth is whether it is not 0."""
    contents = facts.content(0)
    if contents is None or facts.view.outputs[0].dtype != "bool" or facts.view.dtype == "bool":
        return contents
    return Contents(
        contents.shape, tuple(None if one is None else _truth(equal(one, 0), negated=True) for one in contents.elements)
    )


def _truth(answer: bool | None, *, negated: bool = False) -> int | None:
    return None if answer is None else int(answer != negated)


def _each(function: Callable[..., Dimension]) -> ContentsRule:
    """Return the rule of an operator that computes element by element."""

    def rule(facts: Facts) -> Contents | None:
        arrays = [one.array() for one in facts.contents if one is not None]
        if len(arrays) < len(facts.contents) or not arrays:
            return None
        joined = np.broadcast_arrays(*arrays)
        if joined[0].size > MOST_CONTENTS:
            return None
        found = np.empty(joined[0].size, object)
        found[:] = [
            None if any(one is None for one in column) else function(*column)
            for column in zip(*(array.reshape(-1) for array in joined), strict=True)
        ]
        return Contents(joined[0].shape, tuple(found.tolist()))

    return rule


def _divide(facts: Facts) -> Contents | None:
    whole = not facts.view.dtype.startswith("float")
    return _each(partial(_quotient, facts.ranges) if whole else _exact_quotient)(facts)


def _quotient(ranges: Ranges, left: Extent, right: Extent) -> Dimension:
    """Integers are divided towards 0, which is rounding down where neither is negative."""
    if right == 0 or not (isinstance(right, int) or is_at_least(right, 0, ranges)):
        return None
    if isinstance(right, int) and right < 0:
        left, right = multiply(-1, left), -right
    if is_at_least(left, 0, ranges):
        return floordiv(left, right)
    below = floordiv(maximum(multiply(-1, left), 0), right)
    is_nothing = interval(below, ranges)[1] == 0
    return subtract(floordiv(maximum(left, 0), right), 0 if is_nothing else below)


def _exact_quotient(left: Extent, right: Extent) -> Dimension:
    if right == 0:
        return None
    result = floordiv(left, right)
    return result if multiply(result, right) == left else None


def _modulo(facts: Facts) -> Contents | None:
    fmod = facts.attribute("fmod", 0)

    def rest(left: Extent, right: Extent) -> Dimension:
        signed = fmod and not (is_at_least(left, 0, facts.ranges) and is_at_least(right, 0, facts.ranges))
        if right == 0 or signed:
            return None
        for near in (left, add(left, right)):  # the quotient is 0 or -1
            if is_at_least(near, 0, facts.ranges) and is_at_least(subtract(right, near), 1, facts.ranges):
                return near
        return modulo(left, right)

    return _each(rest)(facts)


def _where(facts: Facts) -> Contents | None:
    """Take elements by the condition; where that is unknown, one that both sides agree on."""
    condition, left, right = (facts.content(index) for index in range(3))
    if condition is None or left is None or right is None:
        return None
    columns = np.broadcast_arrays(condition.array(), left.array(), right.array())
    if columns[0].size > MOST_CONTENTS:
        return None
    found = tuple(
        (one if one == other else None) if which is None else one if which == 1 else other if which == 0 else None
        for which, one, other in zip(*(column.reshape(-1) for column in columns), strict=True)
    )
    return Contents(columns[0].shape, found)


def _compared(answer: Callable[[float, float], bool | None]) -> ContentsRule:
    """Return the rule of a comparison, which sees the bounds of ``left - right``."""
    return _each(lambda left, right: _truth(answer(*interval(subtract(left, right)))))


def _less(low: float, high: float) -> bool | None:
    return True if high < 0 else False if low >= 0 else None


def _greater(low: float, high: float) -> bool | None:
    return True if low > 0 else False if high <= 0 else None


def _opposite(answer: Callable[[float, float], bool | None]) -> Callable[[float, float], bool | None]:
    def opposite(low: float, high: float) -> bool | None:
        found = answer(low, high)
        return None if found is None else not found

    return opposite


def _gather(facts: Facts) -> Contents | None:
    source, indices = facts.content(0), facts.content(1)
    if (
        source is None
        or indices is None
        or len(source.shape) != 1
        or not all(isinstance(i, int) for i in indices.elements)
    ):
        return None
    count = len(source.elements)
    places = [one for one in indices.elements if isinstance(one, int)]
    if any(not -count <= place < count for place in places):
        return None
    return Contents(indices.shape, tuple(source.elements[place] for place in places))


def _slice(facts: Facts) -> Contents | None:
    source, starts, ends = facts.content(0), facts.numbers(1, "starts"), facts.numbers(2, "ends")
    axes, steps = facts.numbers(3, "axes"), facts.numbers(4)
    if source is None or starts is None or ends is None or (facts.has(4) and steps is None):
        return None
    if facts.has(3) and axes is None:
        return None
    array = source.array()
    places: list[slice] = [slice(None)] * array.ndim
    for number, axis in enumerate(axes if axes is not None else range(len(starts))):
        if not -array.ndim <= axis < array.ndim:
            return None
        extent, start, end, step = (
            array.shape[axis],
            starts[number],
            ends[number],
            (steps or (1,) * len(starts))[number],
        )
        is_whole = step < 0 and end < -extent
        places[axis] = slice(max(start, -extent), None if is_whole else end, step)
    return Contents.of(array[tuple(places)])


def _concat(facts: Facts) -> Contents | None:
    parts: list[Dimension] = []
    for content, shape in zip(facts.contents, facts.shapes, strict=True):
        if content is not None and len(content.shape) == 1:
            parts += content.elements
        elif shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= MOST_CONTENTS:
            parts += [None] * shape[0]
        else:
            return None
    return Contents((len(parts),), tuple(parts)) if len(parts) <= MOST_CONTENTS else None


def _reshaped(facts: Facts) -> Contents | None:
    """Squeeze, Unsqueeze, Reshape, Flatten: the same elements in the shape that the shape rules give."""
    source = facts.content(0)
    shape = facts.result
    if source is None or shape is None or not all(isinstance(extent, int) for extent in shape):
        return None
    return Contents(tuple(extent for extent in shape if isinstance(extent, int)), source.elements)


def _is_small(shape: Sequence[int]) -> bool:
    """Whether so many elements may be looked at: counted without overflow, for a model may say any numbers."""
    return all(extent >= 0 for extent in shape) and math.prod(map(int, shape)) <= MOST_CONTENTS


def _constant_of_shape(facts: Facts) -> Contents | None:
    counted = facts.numbers(0)
    value = facts.attribute("value")
    number = 0 if value is None else value.reshape(-1)[0]
    if counted is None or not _is_small(counted) or not np.isfinite(number) or number != int(number):
        return None
    return Contents(counted, (int(number),) * math.prod(counted))


def _expand(facts: Facts) -> Contents | None:
    source, target = facts.content(0), facts.numbers(1)
    if source is None or target is None or not _is_small(target):
        return None
    try:
        shape = np.broadcast_shapes(source.shape, target)
    except ValueError:  # they do not go together: the node says so where it runs
        return None
    if not _is_small(shape):
        return None
    return Contents.of(np.broadcast_to(source.array(), shape))


def _tile(facts: Facts) -> Contents | None:
    source, repeats = facts.content(0), facts.numbers(1)
    if source is None or repeats is None or not _is_small((*repeats, len(source.elements))):
        return None
    return Contents.of(np.tile(source.array(), repeats))


def _range(facts: Facts) -> Contents | None:
    bounds = [facts.numbers(index) for index in range(3)]
    if any(bound is None for bound in bounds):
        return None
    start, limit, step = (bound[0] for bound in bounds if bound is not None)
    numbers = range(start, limit, step) if step else range(0)
    return Contents((len(numbers),), tuple(numbers)) if step and len(numbers) <= MOST_CONTENTS else None


def _reduced(function: Callable[..., Extent]) -> ContentsRule:
    """Return the rule of a reduction of all elements of a vector."""

    def rule(facts: Facts) -> Contents | None:
        source = facts.content(0)
        known = None if source is None else source.known
        axes = facts.numbers(1, "axes")
        if source is None or not known or len(source.shape) != 1 or (axes is None and facts.has(1)):
            return None
        if not axes and facts.attribute("noop_with_empty_axes", 0):
            return source
        return Contents((1,) if facts.attribute("keepdims", 1) else (), (function(*known),))

    return rule


def _split(facts: Facts) -> Contents | None:
    """Return the first part; `graft.core.shapes.symbolic_shapes` asks for the others by `split_contents`."""
    parts = split_contents(facts)
    return parts[0] if parts else None


def split_contents(facts: Facts) -> Sequence[Contents]:
    """Return the contents of all outputs of a Split of a vector."""
    source, sizes = facts.content(0), facts.numbers(1, "split")
    if source is None or len(source.shape) != 1:
        return ()
    count = len(source.elements)
    if sizes is None and not facts.has(1):
        part = -(-count // facts.outputs)
        sizes = (*(part for _ in range(facts.outputs - 1)), count - part * (facts.outputs - 1))
    found, place = [], 0
    for size in sizes or ():
        found.append(Contents((size,), source.elements[place : place + size]))
        place += size
    return found


def _transpose(facts: Facts) -> Contents | None:
    source = facts.content(0)
    return None if source is None else Contents.of(source.array().transpose(facts.attribute("perm")))


def _clip(facts: Facts) -> Contents | None:
    source = facts.content(0)
    bounds = [facts.elements(index) for index in (1, 2)]
    if source is None or any(facts.has(index) and bound is None for index, bound in zip((1, 2), bounds, strict=True)):
        return None
    low, high = (None if bound is None else bound[0] for bound in bounds)
    return _each(lambda one: _limited(one, low, high))(facts.only(0))


def _limited(one: Extent, low: Dimension, high: Dimension) -> Extent:
    one = one if low is None else maximum(one, low)
    return one if high is None else minimum(one, high)


def _scatter(facts: Facts) -> Contents | None:
    """ScatterElements and ScatterND of single elements of a vector."""
    source, updates, indices = facts.content(0), facts.content(2), facts.numbers(1)
    plain = facts.attribute("reduction", "none") == "none" and normal_axis(facts.attribute("axis", 0), 1) == 0
    if source is None or updates is None or indices is None or len(source.shape) != 1 or not plain:
        return None
    if len(indices) != len(updates.elements):
        return None
    elements = list(source.elements)
    for place, element in zip(indices, updates.elements, strict=True):
        if not -len(elements) <= place < len(elements):
            return None
        elements[place] = element
    return Contents(source.shape, tuple(elements))


RULES: Mapping[str, ContentsRule] = {
    "Abs": _each(lambda one: one if is_at_least(one, 0) else maximum(one, multiply(-1, one))),
    "Add": _each(add),
    "And": _each(operator.and_),
    "Cast": _cast,
    "Ceil": _same,
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": _each(lambda left, right: _truth(equal(left, right))),
    "Expand": _expand,
    "Flatten": _reshaped,
    "Floor": _same,
    "Gather": _gather,
    "Greater": _compared(_greater),
    "GreaterOrEqual": _compared(_opposite(_less)),
    "Identity": _same,
    "Less": _compared(_less),
    "LessOrEqual": _compared(_opposite(_greater)),
    "Max": _each(maximum),
    "Min": _each(minimum),
    "Mod": _modulo,
    "Mul": _each(multiply),
    "Neg": _each(lambda one: multiply(-1, one)),
    "Not": _each(lambda one: _truth(equal(one, 0))),
    "Or": _each(operator.or_),
    "Range": _range,
    "ReduceMax": _reduced(maximum),
    "ReduceMin": _reduced(minimum),
    "ReduceProd": _reduced(multiply),
    "ReduceSum": _reduced(add),
    "Relu": _each(lambda one: maximum(one, 0)),
    "Reshape": _reshaped,
    "Round": _same,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshaped,
    "Sub": _each(subtract),
    "Sum": _each(add),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _reshaped,
    "Where": _where,
}
