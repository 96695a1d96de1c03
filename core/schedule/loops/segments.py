"""Segments: a stage that reads another source from some position on becomes one stage for each source.

Concat, and what is fused with it, finds its source by comparing an index with constants. Within a segment between two
of them every comparison is decided, so no element is looked for in more than one place, and loops join again.

Pad at an edge or in a mirror turns its index where it leaves the image: of a row that is cut there, the part inside is
read by whole vectors. Where the row's extent varies, so do the places of the cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import FAR, FlatStage, LoopAxis, stride
from graft.core.tensor_ir.ir import Binary, Constant, Expression, Select, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import (
    ExpressionMap,
    free_variables,
    loads,
    structural_key,
    substitution,
    walk_expressions,
)
from graft.core.types import INT64

MOST, MOST_OPEN, MOST_BRANCHES, MOST_TURNS = 128, 4, 32, 16
"""Sources of a stage along one axis, of one whose extent varies, branches of a row, and parts of a row whose indices
turn; a stage with more stays whole."""
TRUE = b.constant(True, "bool")
SHORTEST = 8
"""Neighbouring elements that are worth loops of their own."""


def segments(stage: FlatStage, simplifier: Simplifier) -> tuple[FlatStage, ...]:
    """Return stages that compute one after another what an elementwise stage does; itself where it has one source."""
    if stage.operator is not None:
        return (stage,)
    for number, axis in enumerate(stage.axes):
        ends = _ends(stage, axis)
        lengths = [end - begin for begin, end in pairwise(ends)]
        joint = stride(stage.place, axis.variable, simplifier) == 1
        if 1 < len(lengths) <= MOST and (not joint or min(lengths) >= SHORTEST):
            return tuple(_between(stage, number, ends, simplifier))
        found = _open_parts(stage, axis, simplifier) if axis.is_open and not joint else None
        if found is not None:
            return found
    return (stage,)


def _open_parts(stage: FlatStage, axis: LoopAxis, simplifier: Simplifier) -> tuple[FlatStage, FlatStage] | None:
    """Return what a stage does before and from the place on where its first source ends; None if it has one."""
    others = {other.variable for other in stage.axes if other is not axis}
    nodes = [node for node in walk_expressions(stage.value) if isinstance(node, Select) and _has_sources(node)]
    for node in nodes if len(nodes) < MOST_OPEN else ():
        if not isinstance(node.condition, Binary) or node.condition.operator != "lt":
            continue
        difference = simplifier(Binary("sub", node.condition.left, node.condition.right))
        first = simplifier(substitution({axis.variable: Constant(0, INT64)})(difference))
        if stride(difference, axis.variable, simplifier) != 1 or others & free_variables(first):
            continue
        place = simplifier(b.minimum(b.maximum(b.subtract(0, first), 0), axis.iterations))
        before, after = (_with_operand(stage, node.condition, b.constant(one, "bool")) for one in (True, False))
        rest = part(after, axis, place, axis.iterations, simplifier, axis.extent)
        return part(before, axis, 0, place, simplifier), rest
    return None


def branches(stage: FlatStage, simplifier: Simplifier) -> tuple[LoopAxis, list[tuple[Expression, FlatStage]]] | None:
    """Return the innermost axis, and what a stage does where conditions that are one for all of it hold, in order.

    The last is always true. Of an open Concat of many sources they say which one has a row: a branch costs less than
    masked loads of them all.
    """
    last = stage.axes[-1] if stage.axes else None
    if stage.operator is not None or last is None or not last.is_whole or last.extent < SHORTEST:
        return None
    if stride(stage.place, last.variable, simplifier) != 1:
        return None
    found, value = list[tuple[Expression, FlatStage]](), stage.value
    while isinstance(value, Select) and _has_sources(value) and len(found) < MOST_BRANCHES:
        condition = value.condition
        if loads(condition) or last.variable in free_variables(condition):
            break
        found.append((condition, _with_operand(replace(stage, value=value.on_true), condition, TRUE)))
        value = value.on_false
    if free_variables(*(condition for condition, _ in found)) <= {axis.variable for axis in stage.axes}:
        return None  # of known places, each part has loops of its own
    return last, [*found, (TRUE, replace(stage, value=value))]


def _has_sources(node: Select) -> bool:
    """Whether both operands are read from memory."""
    return bool(loads(node.on_true) and loads(node.on_false))


def _between(stage: FlatStage, number: int, ends: Sequence[int], simplifier: Simplifier) -> Iterator[FlatStage]:
    """Yield the parts of a stage between ``ends`` of one of its axes: by halves, so that few know of all sources."""
    half = len(ends) // 2
    if len(ends) == 2:
        yield stage
        return
    for piece in (ends[: half + 1], ends[half:]):
        own = part(stage, stage.axes[number], piece[0] - ends[0], piece[-1] - ends[0], simplifier)
        yield from _between(own, number, piece, simplifier)


def transposed_rows(stage: FlatStage, simplifier: Simplifier) -> tuple[LoopAxis, tuple[FlatStage, ...]] | None:
    """Return the innermost axis and what an elementwise stage does in parts of it, cut where indices turn.

    None where none turns, or where no part is most of the axis.
    """
    axis = next((one for one in stage.axes if stride(stage.place, one.variable, simplifier) == 1), None)
    if stage.operator is not None or stage.stored is not None or axis is None or not axis.is_whole:
        return None
    if axis.is_open:
        rows = _around_turn(stage, axis, simplifier)
        return None if rows is None else (axis, rows)
    ends = sorted({0, axis.extent, *_turns(stage, axis, simplifier)})
    lengths = [end - begin for begin, end in pairwise(ends)]
    if not 1 < len(lengths) <= MOST_TURNS or max(lengths) < max(SHORTEST, axis.extent // 2):
        return None
    return axis, tuple(part(stage, axis, begin, end, simplifier) for begin, end in pairwise(ends))


def _around_turn(stage: FlatStage, axis: LoopAxis, simplifier: Simplifier) -> tuple[FlatStage, FlatStage] | None:
    """Return what a stage does before and from the place on where a minimum or maximum in an index turns; None if none.

    Each part has the operand that holds there. A turn at a number is near the beginning, any other near the end.
    """
    for node in (one for load in loads(stage.value) for index in load.indices for one in walk_expressions(index)):
        if not isinstance(node, Binary) or node.type != INT64 or node.operator not in ("min", "max"):
            continue
        difference = simplifier(Binary("sub", node.left, node.right))
        moves = stride(difference, axis.variable, simplifier)
        first = simplifier(substitution({axis.variable: Constant(0, INT64)})(difference))
        if not moves or abs(moves) >= FAR:
            continue
        rises = moves > 0  # from ``place`` on the left operand is the greater one, else before it
        place = b.divide(b.subtract(moves - 1, first) if rises else b.subtract(first, moves), abs(moves))
        early, late = (node.right, node.left) if rises == (node.operator == "max") else (node.left, node.right)
        place = simplifier(place)
        near = max(int(place.value), 1) if isinstance(place, Constant) else 0
        place = simplifier(b.minimum(b.maximum(place, 0), axis.iterations))
        before = part(_with_operand(stage, node, early), axis, 0, place, simplifier, near or axis.extent)
        rest = axis.extent if near else 1
        return before, part(_with_operand(stage, node, late), axis, place, axis.iterations, simplifier, rest)
    return None


def _with_operand(stage: FlatStage, node: Expression, operand: Expression) -> FlatStage:
    """Return a stage with what a minimum, a maximum or a condition is in its place, wherever it stands."""
    key = structural_key(node)
    return stage.map(ExpressionMap(lambda one: operand if structural_key(one) == key else one))


def _turns(stage: FlatStage, axis: LoopAxis, simplifier: Simplifier) -> set[int]:
    """Where along an axis one operand of a minimum or maximum in an index overtakes the other, or a rest is 0 again."""
    found: set[int] = set()
    for load in loads(stage.value):
        for node in (one for index in load.indices for one in walk_expressions(index)):
            if not isinstance(node, Binary) or node.type != INT64:
                continue
            if node.operator not in ("min", "max", "mod"):
                continue
            difference = node.left if node.operator == "mod" else Binary("sub", node.left, node.right)
            moves = stride(difference, axis.variable, simplifier)
            first = simplifier(substitution({axis.variable: Constant(0, INT64)})(difference))
            if not moves or not isinstance(first, Constant):
                continue
            place = -int(first.value) // moves
            if node.operator == "mod":
                period = int(node.right.value) if isinstance(node.right, Constant) else 0
                found |= set(range(place % period, axis.extent, period)) if moves == 1 and period else set()
            else:
                found.add(place + 1 if node.operator == "min" else place)
    return {place for place in found if 0 < place < axis.extent}


def _ends(stage: FlatStage, axis: LoopAxis) -> list[int]:
    """Where the segments of an axis begin and end."""
    if not axis.is_known:
        return []
    found = {0, axis.extent}
    for node in walk_expressions(stage.value):
        match node:
            case Select(Binary("lt", Variable() as variable, Constant(value)), left, right):
                if variable is axis.variable and loads(left) and loads(right):
                    found.add(min(max(int(value), 0), axis.extent))
    return sorted(found)


def part(
    stage: FlatStage, axis: LoopAxis, begin: b.Count, end: b.Count, simplifier: Simplifier, usual: int = 0
) -> FlatStage:
    """Return what a stage does from one position along an axis to another; what is left behind others is short.

    If how much that is varies, ``usual`` is what is counted for it where it is given.
    """
    length, count = simplifier(b.subtract(b.extent(end), b.extent(begin))), axis.extent if begin == 0 else 1
    own = LoopAxis.over(Variable(axis.variable.name), length, usual or count)
    simplifier.with_range(own.variable, own.range)
    change = substitution({axis.variable: b.add(own.variable, b.extent(begin))})
    moved = stage.map(lambda expression: simplifier(change(expression)))
    return replace(moved, axes=tuple(own if other is axis else other for other in stage.axes))
