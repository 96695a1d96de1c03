"""The primitive that keeps a constant in the order in which it is read: in panels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graft.core.schedule.primitives.bounds import at_least_zero, mask_of
from graft.core.schedule.primitives.dependence import accesses
from graft.core.schedule.primitives.staging import buffer_named
from graft.core.schedule.primitives.step import Step, bounded, combine, index, with_body
from graft.core.schedule.primitives.vectorize import align
from graft.core.tensor_ir import ir, visit

LONGEST = 1024
"""Elements of a panel: what is shorter is filled with zeros."""


@dataclass(frozen=True, slots=True)
class Pack(Step):
    """Cuts an axis of a constant into panels of some elements, which become its last axis; zeros fill the last one."""

    form = "pack {buffer} {axis} {width} -> {packed}"
    buffer: str
    axis: int
    width: int
    packed: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with another parameter, which `contents` are to be passed for."""
        buffer = buffer_named(self, function, self.buffer)
        if buffer not in function.input_buffers:
            self.fail(f"'{self.buffer}' is no input")
        if self.axis >= len(buffer.shape) or not 1 <= self.width <= LONGEST:
            self.fail(f"'{self.buffer}' has {len(buffer.shape)} axes, and panels have 1 to {LONGEST} elements")
        if not all(isinstance(extent, ir.Constant) for extent in buffer.shape):
            self.fail(f"the extents of '{self.buffer}' are not numbers")
        called = [one.statement for one in accesses(function.body, {buffer}) if one.indices is None]
        if called and isinstance(called[0], ir.CallExtern):
            self.fail(f"'{called[0].name}' reads '{self.buffer}' as it lies")
        rest = buffer.shape[: self.axis] + buffer.shape[self.axis + 1 :]
        length = buffer.shape[self.axis]
        assert isinstance(length, ir.Constant), length
        count = -(-int(length.value) // self.width)
        packed = ir.Buffer(self.packed, buffer.dtype, (index(count), *rest, index(self.width)))
        simplifier = bounded(function.body)

        def own(_: ir.Buffer, places: tuple[ir.Expression, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
            others, place = places[: self.axis] + places[self.axis + 1 :], places[self.axis]
            panel, column = (simplifier(align(combine(one, place, self.width))) for one in ("div", "mod"))
            return packed, (panel, *others, column)

        def unmasked(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Load) or node.buffer is not buffer or node.mask is None:
                return node
            place = node.indices[self.axis]
            bounds = simplifier.interval(simplifier(place))
            exists = at_least_zero(ir.Binary("lt", place, length), simplifier)
            if exists is None or bounds is None or bounds[1] >= count * self.width:
                return node
            rest = [one for one in visit.conjuncts(node.mask) if at_least_zero(one, simplifier) != exists]
            # Where it does not, there are zeros in the last panel.
            return replace(node, mask=mask_of(rest, node.type.lanes))

        body = visit.map_statement(function.body, visit.ExpressionMap(unmasked))
        body = visit.map_accesses(body, {buffer}, own)
        parameters = tuple(packed if one is buffer else one for one in function.parameters)
        return with_body(replace(function, parameters=parameters), body)

    def contents(self, array: np.ndarray) -> np.ndarray:
        """Return an array in panels."""
        moved = np.moveaxis(array, self.axis, -1)
        padded = np.pad(moved, [*[(0, 0)] * (moved.ndim - 1), (0, -moved.shape[-1] % self.width)])
        panels = padded.reshape(*padded.shape[:-1], -1, self.width)
        return np.ascontiguousarray(np.moveaxis(panels, -2, 0))
