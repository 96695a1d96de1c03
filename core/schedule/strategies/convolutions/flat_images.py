"""Spatial axes as one axis: NCHW kernels seen as ``[n, group, channel of the group, pixel]``.

Buffers are contiguous, so the pixels of a plane are one run of memory. Parameters keep their place and their bytes;
only the shape by which they are indexed changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import constant_shape, map_stage
from graft.core.schedule.products.dot_grouping import Sum
from graft.core.tensor_ir.anchors import weakened
from graft.core.tensor_ir.ir import Binary, Bitcast, Buffer, Cast, Expression, Load, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.visit import ExpressionMap, children, free_variables, loads, substitute


@dataclass(frozen=True, slots=True)
class Flattened:
    """Stages over ``(n, group, channel, pixel)``, the kernel with the buffers of that shape, and what was before.

    ``original`` maps new buffers to old ones; ``spatial`` are the anchor's old spatial variables, of which ``anchor``
    (the stage as it was) still speaks; ``extents`` their extents.
    """

    kernel: Kernel
    stages: tuple[Stage, ...]
    original: dict[Buffer, Buffer]
    anchor: Stage
    spatial: tuple[Variable, ...]
    extents: tuple[int, ...]

    def of(self, sums: Sequence[Sum]) -> tuple[Sum, ...]:
        """Return sums that a start reads, under the buffers by which it reads them now."""
        planes = {old: new for new, old in self.original.items()}
        return tuple(replace(one, buffer=planes.get(one.buffer, one.buffer)) for one in sums)


def flatten(kernel: Kernel, stages: Sequence[Stage], groups: int) -> Flattened | None:
    """Return the anchor and its followers over flat pixels; None if some stage is not elementwise."""
    shape = constant_shape(stages[0].buffer)
    if shape is None or len(shape) < 3 or any(constant_shape(stage.buffer) != shape for stage in stages):
        return None
    flat = _Flattener(shape, groups, {stage.buffer for stage in stages})
    new_stages = tuple(flat.stage(stage) for stage in stages)
    if flat.failed:
        return None
    inputs = tuple(flat.planes.get(buffer, buffer) for buffer in kernel.inputs)
    outputs = tuple(flat.results.get(buffer, buffer) for buffer in kernel.outputs)
    original = {new: old for table in (flat.planes, flat.results) for old, new in table.items()}
    constants = {
        flat.planes.get(buffer, buffer): array.reshape(b.dims(flat.planes.get(buffer, buffer)))
        for buffer, array in kernel.constants.items()
    }
    changed = replace(kernel, inputs=inputs, outputs=outputs, constants=constants)
    anchor = map_stage(stages[0], ExpressionMap(flat.in_planes))
    return Flattened(changed, new_stages, original, anchor, stages[0].axes[2:], shape[2:])


class _Flattener:
    def __init__(self, shape: tuple[int, ...], groups: int, computed: set[Buffer]) -> None:
        self.shape, self.spatial = shape, shape[2:]
        self.pixels = math.prod(self.spatial)
        self.groups, self.channels = groups, shape[1] // groups
        results = (shape[0], groups, self.channels, self.pixels)
        self.results = {buffer: _reshaped(buffer, results) for buffer in computed}
        self.planes: dict[Buffer, Buffer] = {}
        self.failed = False

    def stage(self, stage: Stage) -> Stage:
        """Return the stage over the new axes; the anchor's window positions become quotients and remainders."""
        n, group, channel, pixel = axes = tuple(Variable(name) for name in ("n", "group", "channel", "pixel"))
        places: dict[Variable, Expression] = {stage.axes[0]: n}
        places[stage.axes[1]] = b.add(b.multiply(group, self.channels), channel) if self.groups > 1 else channel
        rest: Expression = pixel
        for axis, extent in reversed(list(zip(stage.axes[2:], self.spatial, strict=True))):
            places[axis] = b.modulo(rest, extent) if axis is not stage.axes[2] else rest
            rest = b.divide(rest, extent)
        extents = {group: self.groups, channel: self.channels, pixel: self.pixels}
        # An axis of extent 1 stays a variable: stages are recognised by their axes.
        ranges = {axis: (0, extent - 1) for axis, extent in extents.items() if extent > 1}

        def own(node: Expression) -> Expression:
            return self._load(node, stage, axes) if isinstance(node, Load) else node

        def map_value(value: Expression) -> Expression:
            self._prepare(value, stage)
            return simplify(substitute(ExpressionMap(own)(value), places), ranges)

        epilogue = None if stage.epilogue is None else map_value(stage.epilogue)
        reduction = stage.reduction
        if reduction is not None:
            reduction = replace(reduction, initial=map_value(reduction.initial))
        return replace(
            stage,
            buffer=self.results[stage.buffer],
            axes=axes,
            value=map_value(stage.value),
            reduction=reduction,
            epilogue=epilogue,
            structure=weakened(stage.structure),
        )

    def _prepare(self, value: Expression, stage: Stage) -> None:
        """Find the buffers that are read pixel by pixel: they become planes."""
        for load in loads(value):
            if load.buffer not in self.results and self._is_own(load, stage):
                dims = b.dims(load.buffer)
                self.planes.setdefault(
                    load.buffer, _reshaped(load.buffer, (*dims[: len(dims) - len(self.spatial)], self.pixels))
                )

    def _is_own(self, load: Load, stage: Stage) -> bool:
        rank = len(self.spatial)
        same = load.indices[len(load.indices) - rank :] == stage.axes[2:]
        return same and b.dims(load.buffer)[-rank:] == self.spatial and load.buffer.strides is None

    def _load(self, node: Load, stage: Stage, axes: tuple[Variable, ...]) -> Expression:
        if node.buffer in self.results:
            self.failed |= node.indices != stage.axes
            return Load(self.results[node.buffer], axes, node.mask)
        plane = self.planes.get(node.buffer)
        if plane is None:
            return node
        if self._is_own(node, stage):
            return Load(plane, (*node.indices[: -len(self.spatial)], axes[3]), node.mask)
        return self.in_planes(node)

    def in_planes(self, node: Expression) -> Expression:
        """Return a load of what has become a plane as one of that plane, anything else as it is."""
        plane = self.planes.get(node.buffer) if isinstance(node, Load) else None
        if not isinstance(node, Load) or plane is None:
            return node
        position: Expression = b.index(0)
        for index, extent in zip(node.indices[-len(self.spatial) :], self.spatial, strict=True):
            position = b.add(b.multiply(position, extent), index)
        return Load(plane, (*node.indices[: -len(self.spatial)], position), node.mask)


def _reshaped(buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
    return replace(buffer, shape=tuple(map(b.index, shape)))


def uses_pixels_apart(expression: Expression, pixel: Variable) -> bool:
    """Whether ``pixel`` occurs in an expression other than as the innermost index of an unmasked load."""
    if isinstance(expression, Load):
        *before, last = expression.indices
        return expression.mask is not None or last is not pixel or pixel in free_variables(*before)
    parts = children(expression)
    is_word = isinstance(expression, Bitcast | Binary) and expression.type.is_integer
    if not isinstance(expression, Cast) and not is_word:
        return True
    return any(uses_pixels_apart(part, pixel) for part in parts if pixel in free_variables(part))
