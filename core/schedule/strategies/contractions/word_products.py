"""Products of small numbers by constants as products of packed operands: a rewrite that schedules of them begin with.

Terms go in groups that fill a word, whose dot product is one instruction (`graft.core.schedule.products.dot_grouping`);
what a sum starts from, if it differs between columns, is behind the words of the constant, as one more term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.collapse import collapse_rows
from graft.core.schedule.products.dot_grouping import PACKED_DTYPE, Grouped, group_bytes, multiplies_pairs
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.products.packed_dot import SmallRows
from graft.core.schedule.products.product_axes import Multiply
from graft.core.schedule.templates.rewrites import Rewritten
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import Contraction
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads

WORDS = "words"


def words(kernel: Kernel, target: Target) -> Rewritten | None:
    """Return a product of bytes by a constant as one of words; None if it is of another form, or leaves a word open."""
    collapsed, sources = collapse_rows(kernel) or (kernel, {})
    stages = fused_stages(collapsed)
    if stages is None or target.machine.is_device or not isinstance(stages[0].structure, Contraction):
        return None
    grouped = group_bytes(stages[0], collapsed.constants, widens=multiplies_pairs(target))
    factors = None if grouped is None else factors_of(grouped.anchor)
    reduction = stages[0].reduction
    if grouped is None or factors is None or reduction is None or len(reduction.axes) != 1:
        return None
    (term,), *operands, dot = reduction.axes, *factors
    by_constants = [collapsed.constants.keys() >= {load.buffer for load in loads(one)} for one in operands]
    if by_constants.count(True) != 1 or not isinstance(term.extent, ir.Constant):
        return None
    number, width = by_constants.index(True), DOTS[dot].width
    small = SmallRows(grouped.factors[1 - number].value, grouped.variable, int(term.extent.value))
    made = _constant(collapsed, stages, grouped, operands[number])
    if made is None or small.extent % width or not small.is_contiguous():
        return None
    changed, contents, own, initial = made
    (group,) = (axis.variable for axis in _terms(grouped))
    element = small.operands(b.multiply(group, width), width, None, (DOTS[dot].right, DOTS[dot].left)[number])
    pair = [ir.Bitcast(element, PACKED_DTYPE), own][:: 1 if number else -1]
    anchor = replace(
        grouped.anchor,
        value=ir.Binary("mul", *pair),
        reduction=ir.Reduction("add", _terms(grouped), initial),
    )
    source, new = changed
    new_kernel = replace(
        collapsed,
        inputs=tuple(new if one is source else one for one in collapsed.inputs),
        stages=(anchor, *stages[1:]),
        anchor_stage=0,
        constants={**{one: array for one, array in collapsed.constants.items() if one is not source}, new: contents},
    )
    return Rewritten(new_kernel, {**sources, new: sources.get(source, source)}, Multiply(dot))


def _terms(grouped: Grouped) -> tuple[ir.Axis, ...]:
    assert grouped.anchor.reduction is not None, "a sum"
    return grouped.anchor.reduction.axes


def _constant(
    kernel: Kernel, stages: Sequence[ir.Stage], grouped: Grouped, operand: ir.Expression
) -> tuple[tuple[ir.Buffer, ir.Buffer], np.ndarray, ir.Expression, ir.Expression] | None:
    """Return a constant and its words, their contents, a word, and what sums start from; None if more reads it."""
    anchor, ((group, count),) = grouped.anchor, ((axis.variable, axis.extent) for axis in _terms(grouped))
    assert anchor.reduction is not None, "a sum"
    read = {load.buffer for load in loads(operand)}
    free = free_variables(operand)
    places = [(axis, extent) for axis, extent in zip(anchor.axes, anchor.buffer.shape, strict=True) if axis in free]
    others = [one for stage in stages[1:] for one in stage_expressions(stage)]
    sums = [one for one in grouped.sums if one.constants is not None]
    (source, *rest), axes = read, tuple(anchor.axes.index(axis) for axis, _ in places)
    if rest or len(sums) < len(grouped.sums) or any(load.buffer is source for load in loads(*others)):
        return None
    if any(one.axes != axes for one in sums):
        return None
    whole = ir.Buffer("words", PACKED_DTYPE, (count, *(extent for _, extent in places)))
    stage = ir.Stage(whole, (group, *(axis for axis, _ in places)), operand)
    contents = run_stages([stage], {source: kernel.constants[source]})[whole]
    contents = np.concatenate([contents, *(one.contents()[None] for one in sums)])
    new = replace(source, dtype=PACKED_DTYPE, shape=tuple(map(b.index, contents.shape)), tensor=None)
    behind = {one.buffer: len(contents) - len(sums) + number for number, one in enumerate(sums)}

    def rule(node: ir.Expression) -> ir.Expression:
        if not isinstance(node, ir.Load) or node.buffer not in behind:
            return node
        return ir.Load(new, (b.index(behind[node.buffer]), *node.indices))

    initial = ExpressionMap(rule)(anchor.reduction.initial)
    return (source, new), contents, b.load(new, group, *(axis for axis, _ in places)), initial
