"""Images that are moved between parts of a region with channels last and what has them first.

A part of a network has channels last as a whole or not at all (`region_layout`), but what enters and leaves a region
has them first, and some operators read no other. So that one such place does not decide for all, the image is moved
there: two Transposes, of which one finds its order and the other makes it, in one kernel. Where few channels are
computed, as the colours of a picture, their convolution has pixels in its vectors, and what it reads is moved instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.writer import Writer
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.convolutions.channel_order import has_any_order
from graft.partition.region import Region
from graft.plugins.codegen.choices import CodegenChoices
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.grouping.region_layout import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    RegionGraph,
    made_with_channels_first,
    read_with_channels_first,
)


def with_images_moved(region: Region, table: OperatorTable, target: Target, choices: CodegenChoices) -> Region:
    """Return a region in which no image that others have with channels first keeps it from having them last.

    Its body is changed. That is worth a move in bfloat16, where extents vary, and where images have any order.
    """
    outputs = [one.value for one in region.outputs]
    every = [value for node in region.nodes() for value in (*node.node.inputs, *node.node.outputs)]
    found = dict.fromkeys(value for value in every if value is not None)
    images = {one for one in found if _may_move(ValueView(one), region, target)}
    if not images or target.machine.is_device or "channels-last" in target.without:
        return region
    graph = RegionGraph(
        region.nodes(),
        set(outputs) - images,
        Lowerings(table),
        target,
        choices.table_of_strategies,
        images,
        images.intersection(outputs),
    )
    last = {value for value, layout in choices.layouts(graph).items() if layout.order == CHANNELS_LAST} & images
    if not last:
        return region
    mover = _Mover(region, table, last, lanes_of("float32", target))
    first = read_with_channels_first(graph)
    made = made_with_channels_first(graph)
    for value in [one for one in found if one in last and one in made]:
        last.remove(value)
        mover.enter(value, [use.node for use in value.uses() if use.node not in first.get(value, ())])
    for value, readers in first.items():
        if value in last:
            mover.move(value, readers)
    return replace(region, outputs=tuple(mover.leaving(one) if one in last else ValueView(one) for one in outputs))


def _may_move(value: ValueView, region: Region, target: Target) -> bool:
    is_image = value.dtype == "float32" and value.rank == len(CHANNELS_LAST) and not value.is_constant
    varies = any(not isinstance(extent, int) for extent in (value.shape or ())[1:])
    may_gain = target.precision == "bf16" or varies or has_any_order(target)
    return is_image and value.name not in region.caches and may_gain


@dataclass(slots=True)
class _Mover:
    """Moves images of a region, of which some are wanted with channels ``last``."""

    region: Region
    table: OperatorTable
    last: Collection[ir.Value]
    lanes: int

    def enter(self, value: ir.Value, readers: Sequence[ir.Node]) -> None:
        """Let some nodes read an image with channels last."""
        self._replace(value, readers, self._around(value))

    def move(self, value: ir.Value, readers: Sequence[ir.Node]) -> None:
        """Let some nodes read an image with channels first."""
        if not self._is_read_instead(value):
            self._replace(value, readers, self._around(value))

    def leaving(self, value: ir.Value) -> ValueView:
        """Return what leaves in the place of an image."""
        if self._is_read_instead(value):
            return ValueView(value)
        result = self._around(value)
        value.name, result.name = result.name, value.name
        function = self.region.function
        function.outputs[list(function.outputs).index(value)] = result
        return ValueView(result)

    def _is_read_instead(self, value: ir.Value) -> bool:
        """Move what the convolution behind an image of few channels reads, if it is one; return whether it is."""
        channels, convolution = (value.shape or (0, 0))[1], self._convolution(value)
        source = None if convolution is None else convolution.inputs[0]
        if not isinstance(channels, int) or channels > self.lanes // 2 or convolution is None or source is None:
            return False
        if source in self.last and source.producer() is not None:
            self._replace(source, [convolution], self._around(source))
        return True

    @staticmethod
    def _replace(value: ir.Value, readers: Sequence[ir.Node], other: ir.Value) -> None:
        for node in readers:
            for number, read in enumerate(node.inputs):
                if read is value:
                    node.replace_input_with(number, other)

    def _around(self, value: ir.Value) -> ir.Value:
        """Return an image moved to channels last and back."""
        node, shape, kind = value.producer(), value.shape, value.dtype
        assert node is not None and shape is not None and kind is not None, value.name
        write = Writer(node, Names(ir.Model(self.region.function.graph, ir_version=10)), after=True)
        moved = write.emit("Transpose", [value], kind, [shape[axis] for axis in CHANNELS_LAST], perm=CHANNELS_LAST)
        return write.emit("Transpose", [moved], kind, shape, perm=CHANNELS_FIRST)

    def _convolution(self, value: ir.Value) -> ir.Node | None:
        """Return the convolution whose result an image is, with elementwise nodes behind it; None if there is none.

        Of several, as where an image is added to another, the nearest.
        """
        near, seen = [value], {value}
        for one in near:
            node = one.producer()
            if node is not None and self.table.has(NodeView(node), Trait.CONVOLUTION):
                return node
            if node is not None and self.table.has(NodeView(node), Trait.ELEMENTWISE):
                read = [other for other in node.inputs if other is not None and other not in seen]
                near += read
                seen.update(read)
        return None
