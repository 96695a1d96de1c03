"""The contents of small tensors of whole numbers that are moved, cut, joined and repeated."""

from __future__ import annotations

import math

import numpy as np

from graft.core.affine.expressions import multiply
from graft.core.operators.definition.facts import MOST_CONTENTS, Contents, Dimension, Facts, normal_axis
from graft.core.operators.definition.shape_rules import is_small


def shape_of(facts: Facts) -> Contents | None:
    """The extents of the input, or those that are asked for."""
    shape = facts.known(0)
    part = shape[slice(facts.attribute("start", 0), facts.attribute("end"))]
    return Contents((len(part),), tuple(part))


def size_of(facts: Facts) -> Contents | None:
    """How many elements the input has."""
    return Contents((), (multiply(*facts.extents(0)),))


def gather(facts: Facts) -> Contents | None:
    """Elements of a vector at known positions."""
    source, indices = facts.held(0), facts.held(1)
    if len(source.shape) != 1 or not all(isinstance(i, int) for i in indices.elements):
        return None
    count = len(source.elements)
    places = [one for one in indices.elements if isinstance(one, int)]
    if any(not -count <= place < count for place in places):
        return None
    return Contents(indices.shape, tuple(source.elements[place] for place in places))


def slice_(facts: Facts) -> Contents | None:
    """Elements between known bounds."""
    source, starts, ends = facts.held(0), facts.numbers(1, "starts"), facts.numbers(2, "ends")
    axes, steps = facts.numbers(3, "axes"), facts.numbers(4)
    if starts is None or ends is None or (facts.has(4) and steps is None):
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


def concat(facts: Facts) -> Contents | None:
    """The elements of vectors, those that are not known included."""
    parts: list[Dimension] = []
    for content, shape in zip(facts.contents, facts.shapes, strict=True):
        if content is not None and len(content.shape) == 1:
            parts += content.elements
        elif shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= MOST_CONTENTS:
            parts += [None] * shape[0]
        else:
            return None
    return Contents((len(parts),), tuple(parts)) if len(parts) <= MOST_CONTENTS else None


def reshaped(facts: Facts) -> Contents | None:
    """The same elements in the shape that the rule of shapes gives."""
    source = facts.held(0)
    shape = facts.result
    if shape is None or not all(isinstance(extent, int) for extent in shape):
        return None
    return Contents(tuple(extent for extent in shape if isinstance(extent, int)), source.elements)


def constant_of_shape(facts: Facts) -> Contents | None:
    """One number, as often as is asked for."""
    counted = facts.numbers(0)
    value = facts.attribute("value")
    number = 0 if value is None else value.reshape(-1)[0]
    if counted is None or not is_small(counted) or not np.isfinite(number) or number != int(number):
        return None
    return Contents(counted, (int(number),) * math.prod(counted))


def expand(facts: Facts) -> Contents | None:
    """The elements, repeated along axes of extent 1."""
    source, target = facts.held(0), facts.numbers(1)
    if target is None or not is_small(target):
        return None
    try:
        shape = np.broadcast_shapes(source.shape, target)
    except ValueError:  # they do not go together: the node says so where it runs
        return None
    if not is_small(shape):
        return None
    return Contents.of(np.broadcast_to(source.array(), shape))


def tile(facts: Facts) -> Contents | None:
    """The elements, repeated."""
    source, repeats = facts.held(0), facts.numbers(1)
    if repeats is None or not is_small((*repeats, len(source.elements))):
        return None
    return Contents.of(np.tile(source.array(), repeats))


def range_(facts: Facts) -> Contents | None:
    """Numbers from a start to a limit."""
    bounds = [facts.numbers(index) for index in range(3)]
    if any(bound is None for bound in bounds):
        return None
    start, limit, step = (bound[0] for bound in bounds if bound is not None)
    numbers = range(start, limit, step) if step else range(0)
    return Contents((len(numbers),), tuple(numbers)) if step and len(numbers) <= MOST_CONTENTS else None


def split(facts: Facts) -> Contents | None:
    """A part of a vector: the one that is asked for."""
    source, sizes = facts.held(0), facts.numbers(1, "split")
    if len(source.shape) != 1:
        return None
    count = len(source.elements)
    if sizes is None and not facts.has(1):
        part = -(-count // facts.outputs)
        sizes = (*(part for _ in range(facts.outputs - 1)), count - part * (facts.outputs - 1))
    if sizes is None or facts.output >= len(sizes):
        return None
    place, size = sum(sizes[: facts.output]), sizes[facts.output]
    return Contents((size,), source.elements[place : place + size])


def transpose(facts: Facts) -> Contents | None:
    """The elements in another order of axes."""
    source = facts.content(0)
    return None if source is None else Contents.of(source.array().transpose(facts.attribute("perm")))


def scatter(facts: Facts) -> Contents | None:
    """ScatterElements and ScatterND of single elements of a vector."""
    source, updates, indices = facts.held(0), facts.held(2), facts.numbers(1)
    plain = facts.attribute("reduction", "none") == "none" and normal_axis(facts.attribute("axis", 0), 1) == 0
    if indices is None or len(source.shape) != 1 or not plain:
        return None
    if len(indices) != len(updates.elements):
        return None
    elements = list(source.elements)
    for place, element in zip(indices, updates.elements, strict=True):
        if not -len(elements) <= place < len(elements):
            return None
        elements[place] = element
    return Contents(source.shape, tuple(elements))
