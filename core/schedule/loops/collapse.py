"""Axes as one: a product of ``[n, h, w, k]`` and a matrix seen as one of rows, a sum over several axes as over one.

Buffers are contiguous, so rows of an image follow each other in memory. Parameters keep their place and their bytes;
only the shape by which they are indexed changes. Extents may vary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.inline import constant_shape, stage_expressions
from graft.core.tensor_ir.anchors import weakened
from graft.core.tensor_ir.ir import Axis, Buffer, Expression, Load, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads

Sources = dict[Buffer, Buffer]
"""The buffer before, for each buffer that is seen otherwise."""


def collapsed(kernel: Kernel) -> tuple[Kernel, Sources]:
    """Return a product with its rows as one axis and its terms as one, as far as that is possible."""
    rows, before = collapse_rows(kernel) or (kernel, {})
    terms, own = collapse_terms(rows) or (rows, {})
    return terms, {**before, **{new: before.get(old, old) for new, old in own.items()}}


def collapse_terms(kernel: Kernel) -> tuple[Kernel, Sources] | None:
    """Return the kernel with all axes that its anchor sums over as one, and the old buffer of each new one.

    None where there are fewer than two such axes, or some factor does not have them one behind another.
    """
    anchor = kernel.stages[kernel.anchor_stage]
    reduction = anchor.reduction
    if reduction is None or len(reduction.axes) < 2 or anchor.order is not None:
        return None
    variables = tuple(axis.variable for axis in reduction.axes)
    extents = tuple(axis.extent for axis in reduction.axes)
    term, count = Variable("term"), Simplifier()(b.extent(b.product_of(extents)))
    inputs, others = {*kernel.inputs, *kernel.constants}, [one for one in kernel.stages if one is not anchor]
    read = {load.buffer for stage in others for load in loads(*stage_expressions(stage))}
    new: dict[Buffer, Buffer] = {}

    def rule(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer not in inputs - read or variables[0] not in node.indices:
            return node
        first, buffer = node.indices.index(variables[0]), node.buffer
        end = first + len(variables)
        if (node.indices[first:end], buffer.shape[first:end]) != (variables, extents) or buffer.strides is not None:
            return node
        tensor = buffer.tensor if constant_shape(buffer) is not None else buffer.outside
        seen = replace(buffer, shape=(*buffer.shape[:first], count, *buffer.shape[end:]), tensor=tensor)
        return Load(new.setdefault(buffer, seen), (*node.indices[:first], term, *node.indices[end:]), node.mask)

    value = ExpressionMap(rule)(anchor.value)
    ranks = {load.buffer: len(load.indices) for load in loads(value)}
    is_in_step = all(ranks.get(old, 0) == 0 and ranks[one] == len(one.shape) for old, one in new.items())
    if not new or not is_in_step or not free_variables(value).isdisjoint(variables):
        return None
    summed = replace(reduction, axes=(Axis(term, count),))
    stage = replace(anchor, value=value, reduction=summed, structure=weakened(anchor.structure))
    return _seen_as(kernel, tuple(stage if one is anchor else one for one in kernel.stages), new)


def collapse_rows(kernel: Kernel) -> tuple[Kernel, Sources] | None:
    """Return the kernel with all axes but the last as one, and the old buffer of each new one.

    None where there are fewer than two such axes, or some stage does not go through them all in step.
    """
    *leading, _ = kernel.stages[kernel.anchor_stage].buffer.shape or (b.index(1),)
    if sum(extent != b.index(1) for extent in leading) < 2:
        return None
    collapser = _Collapser(leading)
    stages = tuple(collapser.stage(stage) for stage in kernel.stages)
    if collapser.failed:
        return None
    return _seen_as(kernel, stages, collapser.buffers)


def _seen_as(kernel: Kernel, stages: tuple[Stage, ...], new: Mapping[Buffer, Buffer]) -> tuple[Kernel, Sources]:
    """Return the kernel with other stages and other buffers in the place of some, which have the same bytes."""
    changed = replace(
        kernel,
        inputs=tuple(new.get(buffer, buffer) for buffer in kernel.inputs),
        outputs=tuple(new.get(buffer, buffer) for buffer in kernel.outputs),
        stages=stages,
        constants={
            new.get(buffer, buffer): array.reshape(b.dims(new.get(buffer, buffer)))
            for buffer, array in kernel.constants.items()
        },
    )
    return changed, {one: old for old, one in new.items()}


def with_sources(scheduled: Scheduled, sources: Mapping[Buffer, Buffer]) -> Scheduled:
    """Return a kernel's schedule with packed constants named by the buffers before it was changed."""
    packed = {sources.get(buffer, buffer): contents for buffer, contents in scheduled.packed.items()}
    return replace(scheduled, packed=packed)


class _Collapser:
    def __init__(self, leading: Sequence[Expression]) -> None:
        self.leading = tuple(leading)
        self.rows = Simplifier()(b.extent(b.product_of(leading)))
        self.buffers: dict[Buffer, Buffer] = {}
        self.failed = False

    def stage(self, stage: Stage) -> Stage:
        """Return the stage over rows and columns; sets ``failed`` where it is none."""
        *leading, column = stage.axes or (Variable("none"),)
        if not self._is_rows(stage.buffer) or len(stage.axes) != len(self.leading) + 1:
            self.failed = True
            return stage
        row = Variable("row")

        def rule(node: Expression) -> Expression:
            if not isinstance(node, Load) or not self._is_rows(node.buffer) or not self._is_own(node, leading):
                return node
            return Load(self.buffer(node.buffer), (row, *node.indices[len(leading) :]), node.mask)

        mapped = ExpressionMap(rule)
        value = mapped(stage.value)
        epilogue = None if stage.epilogue is None else mapped(stage.epilogue)
        new = replace(stage, buffer=self.buffer(stage.buffer), axes=(row, column), value=value, epilogue=epilogue)
        new = replace(new, structure=weakened(stage.structure))
        self.failed |= not free_variables(*stage_expressions(new)).isdisjoint(leading)
        return new

    def buffer(self, buffer: Buffer) -> Buffer:
        """Return the buffer with its leading axes as one."""
        rest = buffer.shape[len(self.leading) :]
        tensor = buffer.tensor if constant_shape(buffer) is not None else buffer.outside
        return self.buffers.setdefault(buffer, replace(buffer, shape=(self.rows, *rest), tensor=tensor))

    def _is_rows(self, buffer: Buffer) -> bool:
        return buffer.shape[: len(self.leading)] == self.leading and buffer.strides is None

    def _is_own(self, load: Load, leading: Sequence[Variable]) -> bool:
        pairs = zip(load.indices, leading, self.leading, strict=False)
        return all(index is axis or (extent == b.index(1) and index == b.index(0)) for index, axis, extent in pairs)
