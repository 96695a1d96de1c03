"""Reductions over windows of small images: the pixels of an image are one axis, and its vectors are written out.

Rows of few pixels leave lanes of vectors empty, and what a window has beside the image differs from row to row. Where a
window moves by one pixel over an image as large as its result, neighbouring pixels lie side by side beyond the ends
of rows, too: only masks know of rows, and in vectors that are written out these are constants.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.accumulate import UNROLL
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis, accesses, irregular, stride
from graft.core.schedule.loops.loop_frames import in_vectors
from graft.core.schedule.primitives.loop_kinds import Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir.ir import Binary, Constant, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import substitution
from graft.core.types import INT64

MOST = 360
"""Terms of all vectors of an image, each of which is code of its own."""


def is_small(height: int, width: int, terms: int, lanes: int) -> bool:
    """Whether windows of so many terms over an image are few enough to be written out."""
    return lanes > 1 and terms <= UNROLL and -(-height * width // lanes) * terms <= MOST


def joined_pixels(stage: FlatStage, simplifier: Simplifier, lanes: int) -> FlatStage | None:
    """Return a reduction whose last two axes, which masks alone tell apart, are one; None if it is no such one."""
    if stage.operator is None or len(stage.axes) < 2 or not all(one.is_known for one in (*stage.axes, *stage.reduced)):
        return None
    *outer, rows, columns = stage.axes
    terms = prod(axis.extent for axis in stage.reduced)
    used = irregular(stage, simplifier)
    if not {rows.variable, columns.variable} <= used or not is_small(rows.extent, columns.extent, terms, lanes):
        return None
    pixels = LoopAxis(Variable(f"{rows.variable.name}_{columns.variable.name}"), rows.extent * columns.extent)
    simplifier.with_range(pixels.variable, pixels.range)
    width = Constant(columns.extent, INT64)
    places = {
        rows.variable: Binary("div", pixels.variable, width),
        columns.variable: Binary("mod", pixels.variable, width),
    }
    change = substitution(places)
    joined = replace(stage.map(lambda part: simplifier(change(part))), axes=(*outer, pixels))
    alike = all(stride(place, pixels.variable, simplifier) in (0, 1) for place in accesses(joined))
    return joined if alike else None


def written_out(axis: LoopAxis, lanes: int, machine: Machine) -> tuple[Step, ...]:
    """Return the steps that make a loop of vectors, one behind the other in the code; the last may be masked."""
    name, rest = axis.variable.name, axis.extent % lanes
    if axis.extent <= lanes:
        return in_vectors(name, axis.extent, lanes, machine)
    vector, tail = f"{name}.vector", f"{name}.tail"
    apart = rest > 0 and not machine.masks
    steps = (Split(name, lanes, vector, name, (tail,) if apart else ()), Vectorize(name), Unroll(vector))
    return (*steps, *in_vectors(tail, rest, lanes // 2, machine)) if apart else steps
