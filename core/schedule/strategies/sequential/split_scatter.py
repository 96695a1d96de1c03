"""Scatters of which no axis is an index itself, as parts that threads share.

Each part adds its updates, in order, to a copy of its own; the copies are added up in order. How many there are depends
on the extents alone, so results are the same to the bit for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.primitives.rfactor import identity_of
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import substitution
from graft.core.types import is_custom

PARTS = (8, 4)
"""The numbers of parts, in order of preference: so many copies have at most as many elements as there are updates."""


def split_scatter(stage: ir.Stage, machine: Machine) -> Sequence[ir.Stage]:
    """Return a scatter as a scatter of parts and their sum; any other stage, and one of few updates, as it is."""
    scatter, shape = stage.order, constant_shape(stage.buffer)
    if not isinstance(scatter, ir.Scatter) or scatter.operator == "set" or shape is None or not machine.caches:
        return [stage]
    dtype, extents = stage.buffer.dtype, [axis.extent for axis in scatter.axes]
    numbers = [int(extent.value) for extent in extents if isinstance(extent, ir.Constant)]
    apart = [number for axis, number in zip(scatter.axes, numbers, strict=False) if axis.variable in scatter.indices]
    if len(numbers) < len(extents) or prod(apart) > 1 or machine.is_device or is_custom(dtype):
        return [stage]
    updates = prod(numbers)
    if updates < machine.costs.task or dtype in b.NARROW_FLOATS:
        return [stage]
    for parts in (parts for parts in PARTS if parts * prod(shape) <= updates):
        for place, number in enumerate(numbers):
            if number % parts == 0:
                return _split(stage, scatter, place, parts, number // parts)
    return [stage]


def _split(stage: ir.Stage, scatter: ir.Scatter, place: int, parts: int, length: int) -> Sequence[ir.Stage]:
    old, part, inner = scatter.axes[place], ir.Variable("part"), ir.Variable("inner")
    here = substitution({old.variable: b.add(b.multiply(part, length), inner)})
    copies = ir.Buffer(
        f"{stage.buffer.name}_parts", stage.buffer.dtype, (b.index(parts), *stage.buffer.shape), memory="scratch"
    )
    axes = list(scatter.axes)
    axes[place : place + 1] = [ir.Axis(inner, b.index(length))]
    order = replace(
        scatter,
        axes=(ir.Axis(part, b.index(parts)), *axes),
        indices=(part, *map(here, scatter.indices)),
        update=here(scatter.update),
    )
    own = (ir.Variable("copy"), *(ir.Variable(axis.name) for axis in stage.axes))
    assert scatter.operator != "set", "the last update of a place wins"
    first = ir.Stage(copies, own, identity_of(scatter.operator, stage.value.type), origin=stage.origin, order=order)
    total = stage.value
    for number in range(parts):
        total = b.binary(scatter.operator, total, ir.Load(copies, (b.index(number), *stage.axes)))
    return [first, replace(stage, value=total, order=None)]
