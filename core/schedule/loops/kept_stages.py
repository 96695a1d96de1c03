"""Rows before there are loops: what is costly and used twice is kept, and divisions by a sum become products.

What is costly and computed both for a reduction and for the result (exponentials and their sum) gets a stage of its
own; a division by a reduced value becomes a product with its reciprocal, which is computed once for the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.core.schedule.loops.fused_stages import common_rows, counted
from graft.core.schedule.loops.inline import constant_shape, map_stage, stage_expressions
from graft.core.tensor_ir.ir import Binary, Buffer, Constant, Expression, Intrinsic, Load, Stage, Variable
from graft.core.tensor_ir.ordered_stages import uses_of
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, children, loads, substitute, walk_expressions

LARGEST_ROW = 1 << 15
"""Elements of a row that are kept rather than computed again."""


def keep_costly(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Give a stage to what a reduction and a later stage both compute with an intrinsic."""
    result = list(stages)
    for later in [stage for stage in stages if stage.reduction is None]:
        for earlier in [stage for stage in stages[: stages.index(later)] if stage.reduction is not None]:
            shared = _shared_stage(result[stages.index(earlier)], later, stages)
            if shared is not None:
                position = result.index(shared[1])
                result[position : position + 1] = [shared[0], shared[2]]
                result[result.index(later)] = shared[3]
                return tuple(result)
    return tuple(result)


def _shared_stage(earlier: Stage, later: Stage, stages: Sequence[Stage]) -> tuple[Stage, Stage, Stage, Stage] | None:
    """Return a new stage for what both compute, the earlier stage, and both as readers of the new one."""
    renamed = _correspondence(earlier, later)
    if renamed is None or counted(later.buffer.shape[common_rows(stages) :]) > LARGEST_ROW:
        return None
    same = Simplifier()
    first, second = same(substitute(earlier.value, renamed)), same(later.value)
    known = {id(node) for node in walk_expressions(first)}
    common = next((node for node in _outermost_first(second) if id(node) in known and _is_costly(node)), None)
    is_open = constant_shape(later.buffer) is None
    if common is None or (is_open and common.type.dtype != later.buffer.dtype):
        return None  # what is kept of rows of any length lies in the result
    axes = tuple(Variable(axis.name) for axis in later.axes)
    value = substitute(common, dict(zip(later.axes, axes, strict=True)))
    extents = later.buffer.shape
    buffer = Buffer(f"{later.buffer.name}_kept", common.type.dtype, extents, memory="scratch")
    read = ExpressionMap(lambda node: Load(buffer, later.axes) if node is common else node)
    back: dict[Variable, Expression] = {new: old for old, new in renamed.items() if isinstance(new, Variable)}
    new_earlier = replace(earlier, value=substitute(_replace(first, common, read), back))
    new_later = replace(later, value=_replace(second, common, read))
    return Stage(buffer, axes, value, origin=later.origin), earlier, new_earlier, new_later


def _replace(value: Expression, common: Expression, read: ExpressionMap) -> Expression:
    """Replace a node, known by identity, before what is below it is touched."""
    outermost = ExpressionMap(lambda node: node)
    outermost.define(common, read.rule(common))
    return outermost(value)


def _outermost_first(root: Expression) -> list[Expression]:
    order, done, stack = [], set(), [root]
    while stack:
        node = stack.pop()
        if id(node) not in done:
            done.add(id(node))
            order.append(node)
            stack.extend(children(node))
    return order


def _is_costly(node: Expression) -> bool:
    return any(isinstance(part, Intrinsic) and part.name != "fma" for part in walk_expressions(node))


def _correspondence(earlier: Stage, later: Stage) -> dict[Variable, Expression] | None:
    """Return which of the later stage's axes each axis of a reduction is, judged by a buffer that both read whole."""
    assert earlier.reduction is not None, "only a reduction has reduced axes"
    axes = {*earlier.axes, *(axis.variable for axis in earlier.reduction.axes)}
    mine = {load.buffer: load for load in loads(later.value) if _plain(load) == set(later.axes)}
    for load in loads(earlier.value):
        other = mine.get(load.buffer)
        if other is None or _plain(load) != axes:
            continue
        pairs = zip(load.indices, other.indices, strict=True)
        return {variable: place for variable, place in pairs if isinstance(variable, Variable)}
    return None


def _plain(load: Load) -> set[Variable] | None:
    """Return the variables that index a load, None if they are not different variables and nothing else."""
    found = {index for index in load.indices if isinstance(index, Variable)}
    return found if len(found) == len(load.indices) else None


def with_reciprocals(stages: Sequence[Stage], outputs: Sequence[Buffer]) -> tuple[Stage, ...]:
    """Replace divisions by a reduced float that serves only as a divisor; its stage then gives the reciprocal."""
    result = list(stages)
    for position, stage in enumerate(stages):
        readers = [other for other in stages if uses_of(stage.buffer, [other])]
        one = Constant(1.0, stage.value.type)
        wide = stage.value.type.dtype in ("float32", "float64")
        if stage.reduction is None or stage.buffer in outputs or not wide or not readers:
            continue
        if not all(_divides_only(reader, stage.buffer) for reader in readers):
            continue
        variable = stage.epilogue_variable or Variable("total", stage.value.type)
        total = stage.epilogue if stage.epilogue is not None else variable
        epilogue = Binary("div", one, total)
        result[position] = replace(stage, epilogue_variable=variable, epilogue=epilogue)
        product = ExpressionMap(lambda node, buffer=stage.buffer: _as_product(node, buffer))  # type: ignore[misc]
        for reader in readers:
            place = stages.index(reader)
            result[place] = map_stage(result[place], product)
    return tuple(result)


def _divides_only(stage: Stage, buffer: Buffer) -> bool:
    """Whether every use of a buffer in a stage is as the right side of a division."""
    for node in walk_expressions(*stage_expressions(stage)):
        for operand in children(node):
            divisor = isinstance(node, Binary) and node.operator == "div" and operand is node.right
            if isinstance(operand, Load) and operand.buffer is buffer and not divisor:
                return False
    return not any(isinstance(root, Load) and root.buffer is buffer for root in stage_expressions(stage))


def _as_product(node: Expression, buffer: Buffer) -> Expression:
    if isinstance(node, Binary) and node.operator == "div" and isinstance(node.right, Load):
        return Binary("mul", node.left, node.right) if node.right.buffer is buffer else node
    return node
