"""Kernels that read one box of a tensor, as if the box began at the tensor's first element.

Where the box begins is then an argument, the address that a call passes, and no number in the kernel: the slices of an
image, one for each place of a convolution's window, share one kernel.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.loops.inline import constant_shape, map_stage, stage_expressions
from graft.core.tensor_ir.ir import Buffer, Constant, Expression, Load, Stage
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, loads
from graft.core.types import element_bits, is_custom
from graft.plugins.codegen.lowered_groups import Lowered


def shifted(lowered: Lowered) -> Lowered:
    """Return a kernel whose inputs begin where it begins to read, if it reads a box at one index alone."""
    kernel = lowered.kernel
    if kernel.anchor not in (Trait.ELEMENTWISE, Trait.INJECTIVE):
        return lowered
    boxes: dict[Buffer, tuple[Buffer, int]] = {}
    stages = list(kernel.stages)
    for buffer in kernel.inputs:
        known = buffer in kernel.constants or buffer in lowered.made
        readers = [] if known else [(place, load) for place, one in enumerate(stages) for load in _loads(one, buffer)]
        found = _box(stages[readers[0][0]], readers[0][1]) if len(readers) == 1 else None
        if found is not None:
            moved, boxes[buffer] = found[0], found[1:]
            place, load = readers[0]
            stages[place] = map_stage(stages[place], _instead(load, moved))
    if not boxes:
        return lowered
    inputs = tuple(boxes[one][0] if one in boxes else one for one in kernel.inputs)
    made = replace(kernel, inputs=inputs, stages=tuple(stages))
    return replace(lowered, kernel=made, offsets=dict(boxes.values()))


def _loads(stage: Stage, buffer: Buffer) -> list[Load]:
    """Return the distinct loads of a buffer."""
    return list(dict.fromkeys(load for load in loads(*stage_expressions(stage)) if load.buffer is buffer))


def _instead(old: Load, new: Load) -> ExpressionMap:
    def rule(node: Expression) -> Expression:
        return new if node == old else node

    return ExpressionMap(rule)


def _box(stage: Stage, load: Load) -> tuple[Load, Buffer, int] | None:
    """Return a load in the box that it reads, the box, and the elements before it; None for all, and for no box."""
    buffer, shape = load.buffer, constant_shape(load.buffer)
    is_plain = not is_custom(buffer.dtype) and element_bits(buffer.dtype) % 8 == 0
    if shape is None or load.mask is not None or buffer.strides is not None or not is_plain or stage.order is not None:
        return None
    sides = [_side(stage, index) for index in load.indices]
    known = [side for side in sides if side is not None]
    extents = tuple(extent for _, _, extent in known)
    if len(known) < len(sides) or extents == shape:
        return None
    if any(not 0 <= start <= whole - one for (_, start, one), whole in zip(known, shape, strict=True)):
        return None
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    box = replace(
        buffer, shape=tuple(map(b.index, extents)), strides=tuple(map(b.index, steps)),
        alignment=min(buffer.alignment, element_bits(buffer.dtype) // 8),
    )  # fmt: skip
    before = sum(start * step for (_, start, _), step in zip(known, steps, strict=True))
    return Load(box, tuple(index for index, _, _ in known)), box, before


def _side(stage: Stage, index: Expression) -> tuple[Expression, int, int] | None:
    """Return an index of one axis as one from 0 on, with what it begins at and the extent that it spans."""
    simplifier = Simplifier()
    form = simplifier.form(simplifier(index))
    if not form.terms:
        return b.index(0), form.constant, 1
    ((number, factor), *others) = form.terms.items()
    extents = dict[Expression, Expression](zip(stage.axes, stage.buffer.shape, strict=True))
    extent = extents.get(simplifier.atom(number))
    if others or factor < 1 or not isinstance(extent, Constant) or not extent.value:
        return None
    return b.multiply(simplifier.atom(number), factor), form.constant, factor * (int(extent.value) - 1) + 1
