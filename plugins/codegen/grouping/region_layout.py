"""In which order of axes a region stores its images: one pass over its graph, which everything behind it reads.

A value is stored as the graph has it, unless the structure of what computes it, the machine and the precision say that
another order is faster; a table of strategies knows that (`Strategy.prefers`). Values that leave a region stay.

1. The image and the result of a depthwise convolution between two Transposes have the order that these undo: fusion
   takes the three as one.
2. A part of a network is stored with channels last as a whole or not at all: if its convolutions save more by it than
   it costs to join images, and to move those that others read or that leave, and nothing in it asks for channels first.
   What an operator makes without moving a byte (Reshape) stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.loops.inline import stage_expressions
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.convolutions.channel_order import COPIED, has_any_order
from graft.core.schedule.strategies.strategy import StrategyTable
from graft.core.tensor_ir.anchors import RowReduction, Window
from graft.core.tensor_ir.ir import Expression, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.anchor_rules import element_of, image_and_weights
from graft.core.tensor_ir.visit import free_variables, loads
from graft.plugins.codegen.grouping.lowerings import Lowerings

CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""The order of an image's axes that puts channels last, and the one that puts them first again."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a value is stored: its axes, the outermost first, and why."""

    order: tuple[int, ...]
    reason: str


Layouts = Mapping[ir.Value, Layout]
"""The values that are stored in another order of axes than the graph has."""


@dataclass(frozen=True)
class RegionGraph:
    """What layouts are decided from: nodes in execution order, the values that leave, the lowerings, the machine."""

    nodes: Sequence[NodeView]
    outputs: Collection[ir.Value]
    lowerings: Lowerings
    target: Target
    strategies: StrategyTable = TABLE
    moved: Collection[ir.Value] = ()
    """Images that may be moved for nodes that read them with channels first."""
    leaving: Collection[ir.Value] = ()
    """Those of them that leave the region."""

    @cached_property
    def settled(self) -> tuple[Sequence[tuple[NodeView, _Needs]], frozenset[ir.Value]]:
        """What nodes need, and the images that may have channels last.

        Elementwise nodes with an image that may not, as one that is a view, read all theirs with channels first.
        """
        return _settled(self)


def region_layouts(graph: RegionGraph) -> Layouts:
    """Return the layouts inside a region; none if the target is to do without."""
    if "channels-last" in graph.target.without:
        return {}
    return {**_with_channels_last(graph), **between_transposes(graph)}


# ---- Between Transposes (case 1) ----


def between_transposes(graph: RegionGraph) -> dict[ir.Value, Layout]:
    """Return the layouts of the images and results of depthwise convolutions between two Transposes."""
    found: dict[ir.Value, Layout] = {}
    for node in graph.nodes:
        is_convolution = graph.lowerings.table.has(node, Trait.CONVOLUTION)
        around = transposes_around(node, graph.outputs) if is_convolution else None
        window = None if around is None else _convolution(node, graph.lowerings)
        if around is None or window is None or not window.is_depthwise:
            continue
        name, preference = graph.strategies.preferred(window, graph.target, varies=_varies(node, graph))
        if preference.image == preference.result == "last":
            layout = Layout(CHANNELS_LAST, f"{name} of {node.where} has channels last, as the Transposes around it do")
            found |= dict.fromkeys((around[0].node.outputs[0], node.node.outputs[0]), layout)
    return found


def transposes_around(node: NodeView, outputs: Collection[ir.Value]) -> tuple[NodeView, NodeView] | None:
    """Return a Transpose to channels first and one back that serve a node alone; ``outputs`` leave the region."""
    inner = (node.node.inputs[0], node.node.outputs[0])
    if any(value is None or value in outputs or len(value.uses()) != 1 for value in inner) or inner[0] is None:
        return None
    producer, reader = inner[0].producer(), next(iter(inner[1].consumers()))
    if producer is None or producer.inputs[0] is None:
        return None
    before, after = NodeView(producer), NodeView(reader)
    orders = before.permutation, after.permutation
    to_first = tuple(CHANNELS_LAST.index(axis) for axis in range(len(CHANNELS_LAST)))
    return (before, after) if orders == (to_first, CHANNELS_LAST) else None


# ---- Parts of a network (case 2) ----


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a node needs: values that are ``alike``, perhaps an image with channels ``first``; the cycles it ``saves``.

    That is with channels last, ``by`` which strategy; infinite where other layouts are never wanted.
    """

    alike: tuple[ir.Value, ...] = ()
    first: tuple[ir.Value, ...] = ()
    saves: float = 0.0
    by: str = ""


def _with_channels_last(graph: RegionGraph) -> dict[ir.Value, Layout]:
    if all(_convolution(node, graph.lowerings) is None for node in graph.nodes):  # nothing else saves by it
        return {}
    rows, may = graph.settled
    found = set(may)
    keeping = _keeping(graph)
    kept = [_images([*node.inputs, *node.outputs]) for node in keeping]
    first = {value for _, needs in rows for value in needs.first}
    linked = [needs.alike for _, needs in rows if needs.alike]
    linked += [_images([node.input(0), *node.outputs]) for node in keeping if _is_in_one_order(node, graph)]
    while bad := [values for values in linked if not found.issuperset(values) and found.intersection(values)]:
        found -= {value for values in bad for value in values}
    moves = {*first, *graph.leaving, *(node.node.outputs[0] for node, needs in rows if _makes_first(node, needs))}
    joined = {node.node.outputs[0] for node in keeping if len(_images(node.inputs)) > 1}
    layouts: dict[ir.Value, Layout] = {}
    for part in _parts(found, [*linked, *kept]):
        own = [(node, needs) for node, needs in rows if needs.by and node.node.outputs[0] in part]
        copied = [value for value in part if value in moves or value in joined]
        if sum(needs.saves for _, needs in own) > COPIED * sum(map(_size, copied)):
            node, needs = max(own, key=lambda one: one[1].saves)
            layouts |= dict.fromkeys(part, Layout(CHANNELS_LAST, f"{needs.by} of {node.where} has channels last"))
    return layouts


def _settled(graph: RegionGraph) -> tuple[list[tuple[NodeView, _Needs]], frozenset[ir.Value]]:
    rows = [(node, _needs(node, graph)) for node in graph.nodes]
    made = {one for node in graph.nodes if not graph.lowerings.table.has(node, Trait.VIEW) for one in node.node.outputs}
    found = {value for node in _keeping(graph) for value in _images([*node.inputs, *node.outputs])}
    found |= {value for _, needs in rows for value in needs.alike}
    found = (found & made) - set(graph.outputs)
    count = -1
    while count != len(found):
        count = len(found)
        found -= {value for _, needs in rows for value in needs.first} - set(graph.moved)
        for number, (node, needs) in enumerate(rows):
            if not needs.alike or found.issuperset(needs.alike):
                continue
            if not graph.lowerings.table.has(node, Trait.ELEMENTWISE):
                found -= set(needs.alike)
                continue
            rows[number], count = (node, _Needs(first=_images(node.inputs))), -1
            found -= set() if _varies(node, graph) else set(node.node.outputs)
    return rows, frozenset(found)


def _keeping(graph: RegionGraph) -> list[NodeView]:
    return [node for node in graph.nodes if _keeps_channels(node, graph) and not _leaves_larger(node, graph)]


def _parts(found: Collection[ir.Value], linked: Iterable[Collection[ir.Value]]) -> list[dict[ir.Value, None]]:
    """Return the parts into which links join values, each in some order."""
    parts = {value: {value: None} for value in found}
    for values in linked:
        joined: dict[ir.Value, None] = {}
        for value in values:
            joined |= parts.get(value, {})
        parts |= dict.fromkeys(joined, joined)
    return list({id(part): part for part in parts.values()}.values())


def _size(value: ir.Value) -> int:
    """Return the number of elements, an extent that varies counted as one."""
    return prod(extent if isinstance(extent, int) else 1 for extent in ValueView(value).shape or ())


def read_with_channels_first(graph: RegionGraph) -> dict[ir.Value, list[ir.Node]]:
    """Return the images that some nodes read with channels first, and these nodes."""
    found: dict[ir.Value, list[ir.Node]] = {}
    for node, needs in graph.settled[0]:
        for value in dict.fromkeys(needs.first):
            found.setdefault(value, []).append(node.node)
    return found


def made_with_channels_first(graph: RegionGraph) -> set[ir.Value]:
    """Return images of operators that read their own with channels first: it is as slow to write others."""
    return {node.node.outputs[0] for node, needs in graph.settled[0] if _makes_first(node, needs)}


def _makes_first(node: NodeView, needs: _Needs) -> bool:
    """Whether a node writes images with channels first alone; a Transpose that puts them there need move nothing."""
    return bool(needs.first) and not needs.alike and node.permutation != CHANNELS_FIRST


def _needs(node: NodeView, graph: RegionGraph) -> _Needs:
    lowerings = graph.lowerings
    convolution = _convolution(node, lowerings)
    if convolution is not None:
        image = node.input(0)
        name, preference = graph.strategies.preferred(convolution, graph.target, varies=_varies(node, graph))
        is_given = image is not None and image.value.producer() is None  # is copied, if need be
        comes = is_given and _varies(node, graph)
        last = [
            *([image] if preference.image == "last" and not comes else ()),
            *(node.outputs if preference.result == "last" else ()),
        ]
        first = _images([image] if preference.image == "first" else ())
        count = (node.outputs[0].shape or (1,))[0]
        saves = math.inf if preference.gains else preference.saves * (count if isinstance(count, int) else 1)
        return _Needs(_images(last), first, saves, name if preference.result == "last" else "")
    inputs = tuple(value for value in node.inputs if value is not None)
    values = [value for value in (*inputs, *node.outputs) if not value.is_constant]
    single = all(_is_per_channel(value) for value in inputs if value.is_constant)
    values = [value for value in values if not _is_per_channel(value)]
    images = _images(values)
    if lowerings.table.has(node, Trait.ELEMENTWISE) and single and images and len(images) == len(values):
        return _Needs(images)
    if _leaves_larger(node, graph):
        return _Needs(first=images[:1])
    return (
        _Needs()
        if _keeps_channels(node, graph) or _reduces_pixels(node, lowerings) or node.permutation == CHANNELS_LAST
        else _Needs(first=tuple(one.value for one in inputs))
    )


def _is_per_channel(value: ValueView) -> bool:
    """Whether a value that broadcasts to images differs at most from channel to channel."""
    shape = value.static_shape
    if shape is None:
        return False
    return all(extent == 1 or place == -3 for place, extent in zip(range(-len(shape), 0), shape, strict=True))


def _keeps_channels(node: NodeView, graph: RegionGraph) -> bool:
    """Whether a node computes each channel from one channel, by loops that take any order of axes.

    So do pools, Pad, Resize, Concat.
    """
    has_order, is_narrow = not _takes_any_order(node, graph), graph.target.precision == "bf16"
    if len(node.node.outputs) != 1 or not _is_image(node.outputs[0]):
        return False
    if graph.lowerings.table.has(node, Trait.POOLING):
        return is_narrow or not has_order
    if has_order:
        return False
    images = {graph.lowerings.buffer(one) for one in node.inputs if one is not None and _is_image(one)}
    stages = graph.lowerings.stages(node) if graph.lowerings.table.has(node, Trait.INJECTIVE) else ()
    made = {stage.buffer for stage in stages}
    return bool(stages) and all(
        _moves_with(load.indices[1], stage.axes[1])
        for stage in stages
        for load in loads(*stage_expressions(stage))
        if load.buffer in images or (load.buffer in made and len(load.indices) == len(CHANNELS_LAST))
    )


def _leaves_larger(node: NodeView, graph: RegionGraph) -> bool:
    """Whether an image leaves enlarged, and is read by nothing here: what is enlarged is less to move.

    Of extents that vary it is taken that it is not made smaller.
    """
    image, result = node.input(0), node.outputs[0]
    if not _keeps_channels(node, graph) or graph.lowerings.table.has(node, Trait.POOLING) or image is None:
        return False
    is_alone = len(_images(node.inputs)) == 1 and result.value in graph.leaving and not result.value.uses()
    return is_alone and (_varies(node, graph) or _size(image.value) < _size(result.value))


def _is_in_one_order(node: NodeView, graph: RegionGraph) -> bool:
    """Whether a node reads pixels elsewhere than it writes them: slow from one order to the other.

    Of what moves pixels of open images windows alone are so slow that another image is moved for them.
    """
    if _varies(node, graph):
        return graph.lowerings.table.has(node, Trait.POOLING)
    return has_any_order(graph.target) and not graph.lowerings.table.has(node, Trait.JOINING)


def _moves_with(index: Expression, axis: Variable) -> bool:
    """Whether an index is an axis, or moves by one with it."""
    return free_variables(index) == {axis} and stride(index, axis, Simplifier()) == 1


def _reduces_pixels(node: NodeView, lowerings: Lowerings) -> bool:
    """Whether a node reduces the rows and columns of an image, in whatever order its axes stand."""
    image = node.input(0)
    if image is None or not _is_image(image) or not lowerings.table.has(node, Trait.REDUCTION):
        return False
    return any(stage.structure == RowReduction((2, 3)) for stage in lowerings.stages(node))


def _convolution(node: NodeView, lowerings: Lowerings) -> Window | None:
    """Return the windows of a float32 convolution of a node's first input by constant weights; None for all others."""
    image, result = node.input(0), node.outputs[0]
    if (
        image is None
        or not lowerings.table.has(node, Trait.CONVOLUTION)
        or not (_is_image(image) and _is_image(result))
    ):
        return None
    for stage in lowerings.stages(node):
        factors = image_and_weights(stage)
        if factors is None or not isinstance(stage.structure, Window) or 0 in (result.shape or ()):
            continue
        read, weights = map(element_of, factors)
        if read is None or weights is None or read.buffer is not lowerings.buffer(image):
            continue
        return stage.structure if ValueView(lowerings.values[weights.buffer]).is_constant else None
    return None


def _images(values: Iterable[ValueView | None]) -> tuple[ir.Value, ...]:
    return tuple(value.value for value in values if value is not None and _is_image(value))


def _is_image(value: ValueView) -> bool:
    return value.dtype == "float32" and len(value.shape or ()) == len(CHANNELS_LAST)


def _takes_any_order(node: NodeView, graph: RegionGraph) -> bool:
    """Whether images may be stored in the order that is fastest: where extents vary, or the machine gains by it."""
    return _varies(node, graph) or has_any_order(graph.target)


def _varies(node: NodeView, graph: RegionGraph) -> bool:
    """Whether more than the batch of a node varies: else each image has the schedule that it has by itself."""
    shapes = [value.shape for value in (node.input(0), *node.outputs) if value is not None]
    first = 0 if graph.target.machine.is_device else 1
    return any(shape is None or any(not isinstance(one, int) for one in shape[first:]) for shape in shapes)
