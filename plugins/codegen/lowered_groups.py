"""From groups of nodes to kernels: buffers for values, stages for nodes, constants where they are used."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target
from graft.core.operators.definition.build import constant
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.operators.lower import neutral_stage, of_nothing
from graft.core.schedule.kernel import Kernel, anchor_stage
from graft.core.schedule.loops.inline import map_stage, relaid, reordered, stage_expressions
from graft.core.schedule.loops.narrowing import reading, storing
from graft.core.schedule.products.joined_products import beside
from graft.core.tensor_ir.ir import Bitcast, Buffer, Expression, Load, Stage
from graft.core.tensor_ir.ordered_stages import stage_loops
from graft.core.tensor_ir.visit import ExpressionMap, loads
from graft.core.types import is_custom, storage_dtype
from graft.datatypes.prepare import accumulation, prepare
from graft.datatypes.scaled.packing import with_packed_elements
from graft.plugins.codegen.aliases import Aliases
from graft.plugins.codegen.grouping.fusion import Group, squeezed
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.grouping.region_layout import Layouts

_NOT_IN_A_NAME = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Lowered:
    """A group lowered: a kernel still to be scheduled, and the values that it reads and stores."""

    group: Group
    kernel: Kernel
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    made: Mapping[Buffer, np.ndarray] = field(default_factory=dict)
    """Contents of inputs that stand for a constant in another form."""
    offsets: Mapping[Buffer, int] = field(default_factory=dict)
    """Of inputs that begin within their value: the elements before them."""
    shapes: Mapping[Buffer, tuple[int, ...]] = field(default_factory=dict)
    """Of tensors that are passed in another shape than their value's, for what it tells: that shape."""
    structure: str = ""
    """What the kernel has in common with those that may be the same function, "" where it is not known yet."""


@dataclass(slots=True)
class Values:
    """The buffers of a region's values: one each, whichever kernel uses it."""

    lowerings: Lowerings
    layouts: Layouts = field(default_factory=dict)
    """Those that are stored in another order of axes ..."""
    relaid: dict[Buffer, Buffer] = field(default_factory=dict)
    """... and the buffers that they have then."""
    are_bfloat16: bool = False
    """Whether those are bfloat16 between kernels."""
    narrow: dict[Buffer, Buffer] = field(default_factory=dict)

    @property
    def table(self) -> OperatorTable:
        """The operators."""
        return self.lowerings.table

    def lower_group(self, group: Group, name: str, outside: Sequence[ir.Value]) -> Lowered:
        """Lower a group; ``outside`` are the values that it must store for others."""
        stages: list[Stage] = []
        aliases = Aliases()
        orders: dict[Buffer, tuple[int, ...]] = {}
        for node in (*group.before, *group.nodes):
            source = node.input(0)
            view = self.table.has(node, Trait.VIEW) and node is not group.anchor
            if view and source is not None and squeezed(node.outputs[0]) == squeezed(source):
                aliases.add(self.lowerings.buffer(node.outputs[0]), self.lowerings.buffer(source))
                continue
            lowered = self._not_known(self.lowerings.take(node))
            elementwise = self.table.has(node, Trait.ELEMENTWISE)
            stages += [aliases.rewritten(stage, elementwise=elementwise) for stage in lowered]
            orders |= self._orders(node, lowered)
        moved = {buffer: self._relaid(buffer, order) for buffer, order in orders.items()}
        for order in set(orders.values()):
            own = {buffer: moved[buffer] for buffer in moved if orders[buffer] == order}
            stages = [relaid(stage, own, order) for stage in stages]
        if self.are_bfloat16:
            stages = self._reading_bfloat16(stages, moved.values())
        if group.trait is not Trait.ATTENTION:  # its schedule stores in any order
            stages = reordered(stages)
        recurrent = group.trait is Trait.RECURRENT  # each operation on a custom datatype is rounded where it stands
        inlined = stages if recurrent else [self._with_scalars(stage) for stage in stages]
        outputs = tuple(aliases.get(self.lowerings.buffers[value]) for value in outside)
        outputs = tuple(moved.get(buffer, buffer) for buffer in outputs)
        if self.are_bfloat16:
            stored = {buffer: self._narrowed(buffer) for buffer in outputs if buffer in moved.values()}
            inlined = storing(inlined, stored)
            outputs = tuple(stored.get(buffer, buffer) for buffer in outputs)
        trait = group.trait
        if trait is not Trait.RECURRENT and any(
            map(of_nothing, inlined)
        ):  # the schedules of products and windows need something to divide into tiles
            inlined = [neutral_stage(stage) if of_nothing(stage) else stage for stage in inlined]
            trait = Trait.REDUCTION
        kernel = _kernel(group, trait, name, _needed(inlined, outputs), outputs, self)
        if recurrent:
            return Lowered(
                group, kernel, tuple(self.lowerings.values[buffer] for buffer in kernel.inputs), tuple(outside)
            )
        prepared = with_packed_elements(prepare(kernel, accumulation(group.nodes)))
        kernel = prepared.kernel
        known = {buffer: self.lowerings.known[buffer] for buffer in kernel.inputs if buffer in self.lowerings.known}
        sources = [prepared.sources.get(buffer, buffer) for buffer in kernel.inputs if buffer not in known]
        values = iter([self.lowerings.values[buffer] for buffer in sources])
        inputs = tuple(outside[0] if buffer in known else next(values) for buffer in kernel.inputs)
        return Lowered(group, kernel, inputs, tuple(outside), {**prepared.made, **known})

    def _not_known(self, stages: Sequence[Stage]) -> Sequence[Stage]:
        """The stages without those of tables whose contents are known, and without what only these read."""
        known = self.lowerings.known
        rest = [stage for stage in stages if stage.buffer not in known]
        if len(rest) == len(stages):
            return stages
        return _needed(rest, [stage.buffer for stage in rest if stage.buffer in self.lowerings.values])

    def _orders(self, node: NodeView, stages: Sequence[Stage]) -> dict[Buffer, tuple[int, ...]]:
        """Return the buffers that a node reads and stages store in another order of axes, with that order."""
        buffers = self.lowerings.buffers
        mine = [one.value for one in (*node.inputs, *node.outputs) if one is not None and one.value in self.layouts]
        orders = {buffers[value]: self.layouts[value].order for value in mine}
        result = node.node.outputs[0]
        if result in self.layouts:
            shape = buffers[result].shape
            inner = [one.buffer for one in stages if len(one.buffer.shape) == len(shape)]
            inner = [buffer for buffer in inner if buffer.shape[:2] == shape[:2]]
            orders |= dict.fromkeys(inner, self.layouts[result].order)
        return orders

    def _relaid(self, buffer: Buffer, order: Sequence[int]) -> Buffer:
        known = self.relaid.get(buffer)
        if known is None:
            known = self.relaid[buffer] = replace(buffer, shape=tuple(buffer.shape[axis] for axis in order))
            if buffer in self.lowerings.values:
                self.lowerings.values[known] = self.lowerings.values[buffer]
        return known

    def _reading_bfloat16(self, stages: Sequence[Stage], moved: Collection[Buffer]) -> list[Stage]:
        """Return the stages with what other kernels store with channels last read as bfloat16."""
        computed = {stage.buffer for stage in stages}
        narrow = {buffer: self._narrowed(buffer) for buffer in moved if buffer not in computed}
        return [reading(stage, narrow) for stage in stages]

    def _narrowed(self, buffer: Buffer) -> Buffer:
        known = self.narrow.get(buffer)
        if known is None:
            known = self.narrow[buffer] = replace(buffer, dtype="bfloat16")
            self.lowerings.values[known] = self.lowerings.values[buffer]
        return known

    def _with_scalars(self, stage: Stage) -> Stage:
        """The stage with loads of constants that are one number everywhere replaced by it."""
        found = {load.buffer for load in loads(*stage_expressions(stage))}
        known = {buffer: self._scalar(buffer) for buffer in found if buffer in self.lowerings.values}
        if not any(value is not None for value in known.values()):
            return stage

        def rule(node: Expression) -> Expression:
            value = known.get(node.buffer) if isinstance(node, Load) and node.mask is None else None
            return node if value is None else value

        return map_stage(stage, ExpressionMap(rule))

    def _scalar(self, buffer: Buffer) -> Expression | None:
        value = ValueView(self.lowerings.values[buffer])
        size = np.prod(value.static_shape or (), dtype=np.int64)
        is_zero_point = buffer.dtype in ("uint8", "int8") and len(buffer.shape) == 1 and size > 0
        if not value.is_constant or (size != 1 and not is_zero_point):
            return None
        array = value.constant
        assert array is not None
        if size != 1 and (array != array.reshape(-1)[0]).any():
            return None
        number = constant(array.reshape(-1)[0].item(), storage_dtype(buffer.dtype))
        return Bitcast(number, buffer.dtype) if is_custom(buffer.dtype) else number

    def constants(self, buffers: Sequence[Buffer]) -> Mapping[Buffer, np.ndarray]:
        """Return the contents of those buffers that are known at compile time."""
        known = self.lowerings.known
        arrays = {
            buffer: known[buffer] if buffer in known else ValueView(self.lowerings.values[buffer]).constant
            for buffer in buffers
        }
        return {buffer: array for buffer, array in arrays.items() if array is not None}


def _needed(stages: Sequence[Stage], outputs: Sequence[Buffer]) -> list[Stage]:
    """The stages without those whose result nobody reads (an unused output of a node)."""
    wanted = set(outputs)
    kept = []
    for loop in reversed(stage_loops(stages)):
        if any(stage.buffer in wanted for stage in loop):
            kept.append(loop)
            wanted |= {load.buffer for stage in loop for load in loads(*stage_expressions(stage))}
    return [stage for loop in reversed(kept) for stage in loop]


def _kernel(
    group: Group,
    trait: Trait,
    name: str,
    stages: Sequence[Stage],
    outputs: Sequence[Buffer],
    values: Values,
) -> Kernel:
    computed = {stage.buffer for stage in stages}
    read = [load.buffer for stage in stages for load in loads(*stage_expressions(stage))]
    inputs = tuple(buffer for buffer in dict.fromkeys(read) if buffer not in computed)
    origin = group.origin or tuple(dict.fromkeys(node.name for node in group.nodes))
    return Kernel(
        name, inputs, tuple(outputs), tuple(stages), trait, group.anchor, anchor_stage(stages, group.anchor),
        values.constants(inputs), origin,
    )  # fmt: skip


def lowered_beside(parts: Sequence[Lowered], name: str, target: Target, inner: Collection[ir.Value]) -> Lowered | None:
    """Return lowered products as one kernel, None if they cannot be one; ``inner`` are read by themselves alone."""
    made = {value: buffer for part in parts for buffer, value in zip(part.kernel.outputs, part.outputs, strict=True)}
    known = {buffer: value for part in parts for buffer, value in zip(part.kernel.inputs, part.inputs, strict=True)}
    if any(made.get(value, buffer) is not buffer for buffer, value in known.items()):
        return None  # a view of what another one computes
    if any(part.kernel.anchor is not part.group.trait for part in parts):
        return None  # a product of nothing
    kernel = beside([part.kernel for part in parts], name, target, {made[value] for value in inner})
    if kernel is None:
        return None
    nodes = [node for part in parts for node in part.group.nodes]
    joined = {buffer: kernel.constants[buffer] for buffer in kernel.inputs if buffer not in known}
    inputs = tuple(known.get(buffer, parts[0].inputs[0]) for buffer in kernel.inputs)
    outputs = tuple(value for part in parts for value in part.outputs if value not in inner)
    return Lowered(Group(nodes, parts[0].group.trait), kernel, inputs, outputs, joined)


def kernel_name(region: str, number: int, group: Group) -> str:
    """Return the symbol of a kernel: region, number, and the operators in it."""
    operators = [node.op_type.lower() for node in group.nodes]
    shown = "_".join(operators[:4]) + ("_more" if len(operators) > 4 else "")
    return symbol(f"{region}_{number}_{shown}")


def symbol(name: str) -> str:
    """Return ``name`` as one that object files may have."""
    return _NOT_IN_A_NAME.sub("_", name)
