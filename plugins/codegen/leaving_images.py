"""Images that leave a region in the order of the graph, though what computes them stores channels last.

A region's images have channels last as a whole or not at all (`region_layout`), and what leaves has them first. So that
one image that leaves does not decide for all, it is moved on its way out: two Transposes stand behind it, of which the
first finds its order and the second makes that of the graph, in one kernel. Where few channels leave, as the colours of
a picture, their convolution has pixels in its vectors, and what it reads is moved instead.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.writer import Writer
from graft.core.schedule.products.tiling import lanes_of
from graft.partition.region import Region
from graft.plugins.codegen.choices import CodegenChoices
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.grouping.region_layout import CHANNELS_FIRST, CHANNELS_LAST, RegionGraph


def with_images_apart(region: Region, table: OperatorTable, target: Target, choices: CodegenChoices) -> Region:
    """Return a region of which no image that leaves keeps others from having channels last; its body is changed.

    That is worth a move in bfloat16, and where extents vary: elsewhere both orders are as fast.
    """
    images = [one.value for one in region.outputs if _may_move(one, region, target)]
    if not images or target.machine.is_device or "channels-last" in target.without:
        return region
    inside = {one.value for one in region.outputs} - set(images)
    graph = RegionGraph(region.nodes(), inside, Lowerings(table), target, choices.table_of_strategies)
    last = {value for value, layout in choices.layouts(graph).items() if layout.order == CHANNELS_LAST}
    mover = _Mover(region, table, last, lanes_of("float32", target))
    outputs = tuple(mover.moved(one.value) if one.value in last else one for one in region.outputs)
    return replace(region, outputs=outputs)


def _may_move(value: ValueView, region: Region, target: Target) -> bool:
    is_image = value.dtype == "float32" and value.rank == len(CHANNELS_LAST) and value.producer is not None
    return is_image and value.name not in region.caches and (target.precision == "bf16" or value.static_shape is None)


@dataclass(slots=True)
class _Mover:
    """Moves images of a region, of which some are wanted with channels ``last``."""

    region: Region
    table: OperatorTable
    last: Collection[ir.Value]
    lanes: int

    def moved(self, value: ir.Value) -> ValueView:
        """Return what leaves in the place of an image."""
        channels = (value.shape or (0, 0))[1]
        convolution = self._convolution(value)
        if isinstance(channels, int) and channels < self.lanes // 2 and convolution is not None:
            source = convolution.inputs[0]
            if source is not None and source in self.last and source.producer() is not None:
                convolution.replace_input_with(0, self._around(source))
                return ValueView(value)
        result = self._around(value)
        value.name, result.name = result.name, value.name
        function = self.region.function
        function.outputs[list(function.outputs).index(value)] = result
        return ValueView(result)

    def _around(self, value: ir.Value) -> ir.Value:
        """Return an image moved to channels last and back."""
        node, shape, kind = value.producer(), value.shape, value.dtype
        assert node is not None and shape is not None and kind is not None, value.name
        write = Writer(node, Names(ir.Model(self.region.function.graph, ir_version=10)), after=True)
        moved = write.emit("Transpose", [value], kind, [shape[axis] for axis in CHANNELS_LAST], perm=CHANNELS_LAST)
        return write.emit("Transpose", [moved], kind, shape, perm=CHANNELS_FIRST)

    def _convolution(self, value: ir.Value) -> ir.Node | None:
        """Return the convolution whose result an image is, with elementwise nodes behind it; None if there is none."""
        node = value.producer()
        while node is not None and not self.table.has(NodeView(node), Trait.CONVOLUTION):
            source = node.inputs[0] if self.table.has(NodeView(node), Trait.ELEMENTWISE) and node.inputs else None
            node = None if source is None else source.producer()
        return node
