"""Leading axes as one: a product of ``[n, h, w, k]`` and a matrix seen as one of rows.

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
from graft.core.tensor_ir.ir import Buffer, Expression, Load, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, free_variables


def collapse_rows(kernel: Kernel) -> tuple[Kernel, dict[Buffer, Buffer]] | None:
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
    new = collapser.buffers
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
