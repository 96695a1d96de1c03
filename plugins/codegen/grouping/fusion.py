"""Fusion: which operators share a kernel.

Every group has one tail, the only node whose output is seen outside; so groups can be run in the order of their tails
and fusion never makes a cycle. A group is grown behind its anchor, step by step: the tail's output has a nearest node
through which all its uses pass (the use itself, or the end of a diamond such as ``x * sigmoid(x)``); if everything up
to there is elementwise and of the same shape but for dimensions of 1, or a view of such a shape, it joins. Anchors
that cost most choose first. A group of elementwise nodes takes those that it alone reads, too. A view that nothing
follows in its group is no part of it: it costs nothing by itself. Nodes that widen integers of 8 bits are computed
where they are read (`graft.plugins.codegen.grouping.dequantize_fusion`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.operators.definition.varying import is_static
from graft.core.operators.extent_check import checked_values
from graft.core.operators.index_check import unexpanded
from graft.plugins.codegen.grouping.attention_fusion import find_attention
from graft.plugins.codegen.grouping.concat_in_place import Placed, placed_concats
from graft.plugins.codegen.grouping.dequantize_fusion import computed_before, follows_integers, is_widening
from graft.plugins.codegen.grouping.reduction_fusion import find_rows, with_producers
from graft.plugins.codegen.grouping.region_layout import Layouts, transposes_around
from graft.plugins.codegen.grouping.slice_views import slices_in_memory

ANCHORS = (
    (Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION),
    (Trait.ROW_WISE, Trait.REDUCTION, Trait.POOLING),
    (Trait.INJECTIVE, Trait.ELEMENTWISE),
)
"""The traits of anchors, in the order in which they choose what follows them."""
EVERY_ANCHOR = tuple(chain(*ANCHORS))

PLAIN = (Trait.ELEMENTWISE, Trait.DATA_MOVEMENT)
"""What is computed at its transposed place where extents vary."""
MOST_SHARED = 8
"""Products from which on each thread has some for itself."""


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """How far fusion goes; ``group=1`` leaves every operator alone."""

    group: int = 64
    """Nodes of one kernel up to which others follow: what a kernel costs to compile grows faster than its length."""
    diamond: int = 24
    """Nodes up to which the end of a diamond is looked for."""
    attention: tuple[str, ...] = ("float32", "float64")
    """Types of tensors whose attention is one kernel."""
    rows: tuple[str, ...] = ("float32", "float64")
    """Types of tensors whose reductions share kernels with what is computed for them, and from them."""


@dataclass(slots=True)
class Group:
    """Nodes of one kernel in execution order; ``trait`` chooses the schedule, ``lead`` nodes precede the anchor."""

    nodes: list[NodeView]
    trait: Trait
    is_view: bool = False
    lead: int = 0
    before: list[NodeView] = field(default_factory=list)
    """What the nodes read that is computed anew in this kernel, in execution order."""
    beside: list[Group] = field(default_factory=list)
    """Groups that are to share the kernel (`graft.plugins.codegen.grouping.horizontal_fusion`)."""
    parts: list[tuple[ValueView, int]] = field(default_factory=list)
    """Values that are parts of the result, each with the number of its first element there."""
    origin: tuple[str, ...] = ()
    """The names of the nodes that it stands for, where they are not its own."""
    slices: list[tuple[ir.Value, int]] | None = None
    """What is a piece of the memory of the anchor's first input, and the number of elements before it."""
    appends: int | None = None
    """The axis of a Concat that the runtime does, behind what is there."""
    placed: Placed | None = None
    """How a Concat whose parts are computed in its memory is put together."""

    @property
    def anchor(self) -> NodeView:
        """The node whose trait chooses the schedule."""
        return self.nodes[self.lead]

    @property
    def tail(self) -> NodeView:
        """The node whose outputs are seen outside."""
        return self.nodes[-1]

    def __str__(self) -> str:
        kind = "view" if self.is_view else self.trait.name.lower()
        before = f"({' '.join(node.op_type for node in self.before)}) " if self.before else ""
        beside = "".join(f" | {' '.join(node.op_type for node in group.nodes)}" for group in self.beside)
        return f"{kind}: {before}{' '.join(node.op_type for node in self.nodes)}{beside}"


@dataclass(slots=True)
class Uses:
    """Who reads each value of a region, in execution order, and which values leave it."""

    order: dict[ir.Node, int]
    readers: dict[ir.Value, list[NodeView]]
    outputs: Collection[ir.Value]
    taken: set[ir.Node] = field(default_factory=set)
    turning: set[ir.Node] = field(default_factory=set)
    """Transpositions that their readers do."""
    limits: FusionLimits = FusionLimits()

    @classmethod
    def of(cls, nodes: Sequence[NodeView], outputs: Collection[ir.Value]) -> Uses:
        """Return the uses in a list of nodes."""
        readers: dict[ir.Value, list[NodeView]] = {}
        for node in nodes:
            for value in dict.fromkeys(node.node.inputs):
                if value is not None:
                    readers.setdefault(value, []).append(node)
        return cls({node.node: number for number, node in enumerate(nodes)}, readers, outputs)

    def used_outputs(self, node: NodeView) -> list[ir.Value]:
        """Return the outputs of a node that something reads."""
        return [value for value in node.node.outputs if value in self.readers or value in self.outputs]

    def next_joint(self, value: ir.Value, joins: Callable[[NodeView], bool]) -> list[NodeView]:
        """Return the nodes up to the first through which all uses of ``value`` pass; none if one does not join.

        Nor does one whose shape is checked against what is computed here: checks come before a whole kernel.
        """
        found: list[NodeView] = []
        last, made = value, {value}
        if value in self.outputs:
            return []
        waiting = {node.node: node for node in self.readers.get(value, ())}
        while waiting and len(found) < self.limits.diamond:
            node = waiting.pop(min(waiting, key=lambda one: self.order[one]))
            outputs = self.used_outputs(node)
            if node.node in self.taken or len(outputs) != 1 or not joins(node):
                return []
            if not made.isdisjoint(checked_values(node)):
                return []
            found.append(node)
            last = outputs[0]
            made.add(last)
            if not waiting:
                return found
            if last in self.outputs:
                return []
            waiting |= {reader.node: reader for reader in self.readers[last]}
        return []


def fuse(
    nodes: Sequence[NodeView],
    outputs: Collection[ir.Value],
    table: OperatorTable,
    without: Collection[str] = (),
    layouts: Layouts = MappingProxyType({}),
    limits: FusionLimits = FusionLimits(),
    appended: Mapping[ir.Value, int] = MappingProxyType({}),
) -> list[Group]:
    """Return the groups of a region's nodes in execution order; every node is in exactly one.

    ``nodes`` stand in execution order and have lowerings; ``outputs`` are the values that leave the region. What
    ``without`` names is left out: ``attention`` (its products and its Softmax stay apart), ``fusion`` (so does every
    other node), ``views`` (they are copied), ``in-place`` (every Concat is a kernel). Transposes that the
    ``layouts`` of a convolution's image and result undo join it. The Concats that make what is ``appended``, along an
    axis each, stand alone.
    """
    uses = Uses.of(nodes, outputs)
    uses.limits = limits
    found = [] if "attention" in without else find_attention(nodes, uses.readers, outputs, table, limits.attention)
    groups = [Group(whole, Trait.ATTENTION) for whole in found]
    uses.taken |= {node.node for whole in found for node in whole}
    groups += [
        Group([node], Trait.INJECTIVE, appends=appended[node.node.outputs[0]])
        for node in nodes
        if node.node.outputs[0] in appended
    ]
    uses.taken |= {group.anchor.node for group in groups if group.appends is not None}
    groups += _placed(nodes, layouts, appended, uses, table, without)
    groups += [] if "fusion" in without else _scatters(nodes, uses, table)
    rest = [node for node in nodes if node.node not in uses.taken]
    if "fusion" in without:
        alone = [Group([node], anchor_trait(node, table)) for node in rest]
        return _in_order([*groups, *alone], uses, table, layouts, copied="views" in without)
    views = [node for node in rest if is_view(node, uses, table)]
    others = [node for node in rest if not is_view(node, uses, table)]
    widening = {node.node: node for node in others if is_widening(node, uses.readers, table)}
    uses.turning = {node for node, view in widening.items() if view.permutation is not None}
    anchors = [(node, anchor_trait(node, table)) for node in others if node.node not in widening]
    for traits in ANCHORS:
        if Trait.REDUCTION in traits:
            rows = find_rows([node for node, _ in anchors], uses, table, limits.rows, limits.group)
            groups += [_around_reduction(group, table) for group in rows]
        for node, trait in anchors:
            if node.node not in uses.taken and (trait in traits or traits is ANCHORS[-1]):
                groups.append(_around(node, trait, uses, table, node.node.outputs[0] in layouts))
    left = {node: view for node, view in widening.items() if node not in uses.taken}
    groups += _with_widening(groups, left, uses, table)
    groups += [Group([node], anchor_trait(node, table)) for node in views if node.node not in uses.taken]
    return _in_order(groups, uses, table, layouts, copied="views" in without)


def _around(node: NodeView, trait: Trait, uses: Uses, table: OperatorTable, is_moved: bool) -> Group:
    """The group of an anchor: what it alone reads, and what follows it; ``is_moved`` if a layout moves its axes."""
    group = Group([node], trait)
    if is_moved:
        _take_transposes(group, uses)
    elif trait is Trait.CONTRACTION:
        _take_transposed_factors(group, uses)
    elif trait is Trait.REDUCTION and node.outputs[0].dtype in uses.limits.rows:
        _take_producers(group, uses, table)
    group = _grown(group, uses, table)
    if trait is Trait.ELEMENTWISE:
        _take_producers(group, uses, table)
    return group


def _around_reduction(nodes: list[NodeView], table: OperatorTable) -> Group:
    """The group of nodes of rows; its anchor is the first that reduces."""
    reduces = (table.has(node, Trait.REDUCTION) or table.has(node, Trait.ROW_WISE) for node in nodes)
    return Group(nodes, Trait.ROW_WISE, lead=list(reduces).index(True))


def _scatters(nodes: Sequence[NodeView], uses: Uses, table: OperatorTable) -> list[Group]:
    """The groups of scatters that alone read expanded indices, or updates that are larger than what they are made of.

    They read the indices as they were before, and compute the updates.
    """
    groups = []
    for node in nodes:
        indices = node.input(1)
        if indices is None or not table.has(node, Trait.SCATTER) or not is_static(node):
            continue
        source = indices.producer
        own = _repeated_updates(node, uses, table)
        if source is not None and unexpanded(indices) != indices and _is_read_alone(source, node, uses):
            own.append(source)
        if own:
            own.sort(key=lambda one: uses.order[one.node])
            groups.append(Group([*own, node], Trait.RECURRENT, lead=len(own)))
            uses.taken |= {one.node for one in groups[-1].nodes}
    return groups


def _repeated_updates(scatter: NodeView, uses: Uses, table: OperatorTable) -> list[NodeView]:
    """The elementwise node that a scatter takes its updates from, and views between, where it repeats what it reads.

    Rows that the scatter adds whole stay in memory: its vectors want them side by side.
    """
    *_, updates = scatter.inputs
    reader, found, row = scatter, list[NodeView](), table.of(scatter)
    bounds = () if row is None or row.indices is None else row.indices(scatter)
    if updates is None or any(bound.axis != (updates.rank or 0) - 1 for bound in bounds):
        return []
    while updates is not None and (node := updates.producer) is not None and _is_read_alone(node, reader, uses):
        found.append(node)
        if table.has(node, Trait.ELEMENTWISE):
            sizes = [math.prod(one.static_shape or ()) for one in node.inputs if one is not None]
            return found if max(sizes) < math.prod(updates.static_shape or ()) else []
        if not is_view(node, uses, table):
            break
        reader, updates = node, node.input(0)
    return []


def _is_read_alone(node: NodeView, reader: NodeView, uses: Uses) -> bool:
    """Whether a node of the region is computed for one reader."""
    value = node.node.outputs[0]
    alone = [one.node for one in uses.readers.get(value, ())] == [reader.node] and value not in uses.outputs
    return alone and node.node in uses.order and node.node not in uses.taken


def _placed(
    nodes: Sequence[NodeView],
    layouts: Layouts,
    appended: Collection[ir.Value],
    uses: Uses,
    table: OperatorTable,
    without: Collection[str],
) -> list[Group]:
    """The groups of Concats whose parts are computed in their memory: views of what is there.

    A part in an order of its own is no run of that memory.
    """

    def joins(node: NodeView) -> bool:
        return table.has(node, Trait.JOINING) and layouts.keys().isdisjoint(node.node.inputs)

    def shares_memory(node: NodeView) -> bool:
        return "views" not in without and node.node not in uses.taken and is_view(node, uses, table)

    def is_followed(value: ir.Value) -> bool:
        readers = uses.readers.get(value, [])
        moves = len(readers) == 1 and not joins(readers[0]) and table.has(readers[0], Trait.INJECTIVE)
        elementwise = bool(readers) and all(table.has(reader, Trait.ELEMENTWISE) for reader in readers)
        return (moves or elementwise) and value not in uses.outputs and "fusion" not in without

    apart = {*layouts, *appended}
    found = [] if "in-place" in without else placed_concats(nodes, apart, joins, shares_memory, is_followed)
    uses.taken |= {placed.node.node for placed in found}
    for placed in found:
        for value, _ in (*placed.computed, *placed.copied):
            if placed.node not in uses.readers.setdefault(value, []):  # what another Concat has put together
                uses.readers[value].append(placed.node)
    return [Group([placed.node], Trait.VIEW, is_view=True, placed=placed) for placed in found]


def _in_order(
    groups: Sequence[Group], uses: Uses, table: OperatorTable, layouts: Layouts, *, copied: bool
) -> list[Group]:
    """The groups in execution order; those of one view cost nothing unless views are ``copied``.

    What has a layout of its own is no view, and no part of a tensor's memory is one that a Concat has.
    """
    placed = {value for group in groups if group.placed is not None for value, _ in group.placed.computed}
    for group in groups:
        is_relaid = any(value in layouts for value in group.tail.node.outputs)
        if copied or is_relaid or group.is_view or group.appends is not None or len(group.nodes) != 1:
            continue
        if is_view(group.anchor, uses, table):
            group.trait, group.is_view = Trait.VIEW, True
        elif not group.before and not placed.intersection(group.tail.node.outputs):
            group.slices = slices_in_memory(group.anchor)
            if group.slices is not None:
                group.trait, group.is_view = Trait.VIEW, True
    return sorted(groups, key=lambda group: uses.order[group.tail.node])


def _with_widening(
    groups: Sequence[Group], widening: Mapping[ir.Node, NodeView], uses: Uses, table: OperatorTable
) -> list[Group]:
    """Put nodes that widen before those that read them, and return the groups of those that others read, too."""
    readers: dict[ir.Node, set[ir.Node]] = {}
    for group in groups:
        group.before = computed_before(group.nodes, group.trait, widening, table)
        for node in group.before:
            readers.setdefault(node.node, set()).update(one.node for one in group.nodes)
    apart = []
    for node in widening.values():
        value = node.node.outputs[0]
        served = {reader.node for reader in uses.readers.get(value, ())} <= readers.get(node.node, set())
        if not served or value in uses.outputs:
            apart.append(_grown(Group([node], anchor_trait(node, table)), uses, table))
    return apart


def squeezed(value: ValueView) -> tuple[int | str | None, ...]:
    """Return the shape of a value without dimensions of 1."""
    return tuple(extent for extent in value.shape or () if extent != 1)


def anchor_trait(node: NodeView, table: OperatorTable) -> Trait:
    """Return the trait that chooses the schedule of a kernel with this node as its anchor."""
    operator = table.of(node)
    assert operator is not None, f"{node.where} is not in the operator table"
    return next((trait for trait in EVERY_ANCHOR if trait in operator.traits), Trait.RECURRENT)


def is_view(node: NodeView, uses: Uses, table: OperatorTable) -> bool:
    """Whether the node's only used output is its first input's bytes under another shape."""
    return table.has(node, Trait.VIEW) and uses.used_outputs(node) in ([], [node.node.outputs[0]])


def _take_producers(group: Group, uses: Uses, table: OperatorTable) -> None:
    """Add the elementwise nodes that a group alone reads."""
    anchor = group.anchor
    group.nodes = with_producers(group.nodes, uses, table, uses.limits.group)
    group.lead = group.nodes.index(anchor)


def _take_transposes(group: Group, uses: Uses) -> None:
    """Add the Transposes that the layouts of a node's image and result undo."""
    around = transposes_around(group.anchor, uses.outputs)
    if around is not None and not uses.taken & {node.node for node in around}:
        group.nodes, group.lead = [around[0], group.anchor, around[1]], 1


def _take_transposed_factors(group: Group, uses: Uses) -> None:
    """Add the Transpose that makes rows of the columns of left factors: packing reads these in any order.

    Of few large products threads share one, and would each read columns again.
    """
    left = group.anchor.input(0)
    node, shape = (None, None) if left is None else (left.producer, left.static_shape)
    if left is None or node is None or shape is None or node.node not in uses.order or node.node in uses.taken:
        return
    rows, columns = len(shape) - 2, len(shape) - 1
    is_transposed = node.permutation is not None and [*node.permutation] == [*range(rows), columns, rows]
    is_alone = [one.node for one in uses.readers[left.value]] == [group.anchor.node] and left.value not in uses.outputs
    if is_transposed and is_alone and math.prod(shape[:-2]) >= MOST_SHARED and group.anchor.op_type == "MatMul":
        group.nodes, group.lead = [node, group.anchor], 1


def _grown(group: Group, uses: Uses, table: OperatorTable) -> Group:
    """The group of an anchor and everything elementwise that can follow it in the same loops."""
    trait, least = group.trait, len(group.nodes)
    uses.taken |= {node.node for node in group.nodes}
    if trait in (Trait.RECURRENT, Trait.ATTENTION):
        return group
    follower = follows_integers(group.anchor, uses.readers, uses.outputs, table)
    if follower is not None and follower.node not in uses.taken:
        group.nodes.append(follower)
        uses.taken.add(follower.node)
    while len(outputs := uses.used_outputs(group.tail)) == 1:
        shape = squeezed(ValueView(outputs[0]))

        def joins(node: NodeView, shape: tuple[int | str | None, ...] = shape) -> bool:
            same = squeezed(node.outputs[0]) == shape
            is_elementwise = table.has(node, Trait.ELEMENTWISE)
            if not is_static(node):  # kernels read the extents of the tensors that they are given
                return node.outputs[0].shape == ValueView(outputs[0]).shape and is_elementwise
            return same and (is_elementwise or is_view(node, uses, table))

        more = uses.next_joint(outputs[0], joins) or _moved(outputs[0], trait, uses, table)
        if not more or len(group.nodes) + len(more) > uses.limits.group:
            break
        group.nodes += more
        uses.taken |= {node.node for node in more}
    while len(group.nodes) > least and (
        is_view(group.tail, uses, table) or _is_widened_elsewhere(group.tail, uses, table)
    ):
        uses.taken.remove(group.nodes.pop().node)
    return group


def _is_widened_elsewhere(node: NodeView, uses: Uses, table: OperatorTable) -> bool:
    """Whether a node only widens bytes, which its readers would rather do themselves."""
    value = node.node.outputs[0]
    readers = uses.readers.get(value, [])
    own = is_widening(node, uses.readers, table) and value not in uses.outputs and node.permutation is None
    do = (any(table.has(reader, trait) for trait in (Trait.ELEMENTWISE, Trait.REDUCTION)) for reader in readers)
    return own and bool(readers) and all(do)


def _moved(value: ir.Value, trait: Trait, uses: Uses, table: OperatorTable) -> list[NodeView]:
    """The single reader that only moves elements, if computing them at their new place costs nothing more."""
    readers = uses.readers.get(value, [])
    if trait not in ANCHORS[-1] or len(readers) != 1 or value in uses.outputs or readers[0].node in uses.taken:
        return []
    (node,) = readers
    if (
        node.node in uses.turning
        or not table.has(node, Trait.INJECTIVE)
        or node.input(0) != ValueView(value)
        or value in node.node.inputs[1:]
        or value in checked_values(node)
        or table.has(node, Trait.JOINING)
    ):
        return []
    before, after = ValueView(value).static_shape, node.outputs[0].static_shape
    varies, source = before is None or after is None, value.producer()
    # rows of a Pad or Resize, which are cut where they turn, stay rows
    is_plain = source is not None and any(table.has(NodeView(source), one) for one in PLAIN)
    moves = is_plain and node.permutation is not None
    grows = not moves if varies else math.prod(after or ()) > math.prod(before or ())
    return [] if grows or len(uses.used_outputs(node)) != 1 else [node]
