"""Which values of a forward pass are kept for the backward pass, and what it costs to compute the others again.

The forward pass is cut into segments. At its end a segment keeps what later ones read, and of the values that the
backward pass reads

1. all, or
2. those of the smallest cut in bytes below products, random numbers and reductions, which are not computed again, or
3. none: the backward pass begins with the whole segment, once more.

The peak of a choice is the largest sum, over segments, of what is kept so far and what the segment computes again.
Cuts of a chain are Chen's (arXiv 1604.06174); the cheapest choice within a budget is found by dynamic programming over
them, exact for chains, and the smallest cut is that of Dinic's algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import accumulate

import onnx_ir as ir

from graft.core.graph.view import NodeView, constant_tensor
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import has_trait
from graft.core.shapes.sample_inputs import typical_numbers
from graft.partition.costs import Work, kernel_cost, value_bytes
from graft.partition.min_cut import INFINITE, SINK, SOURCE, Network
from graft.partition.placement.estimators import Roofline

SMALL = 1 << 10
"""Values so many times smaller than the largest, or than what they are computed of, are kept."""
MOST_CUTS, GRAINS = 48, 1 << 8
"""Places between segments that are tried, and steps in which kept bytes of a budget are counted."""
FIXED = frozenset({Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION, Trait.RECURRENT, Trait.POOLING})
"""Traits of operators that case 2 does not compute again."""
Kept = frozenset[ir.Value]


@dataclass(frozen=True, slots=True)
class _Segment:
    """Nodes from ``start`` on: what they keep, its bytes, and the bytes and seconds of what they compute again."""

    start: int
    kept: Kept
    bytes: int
    again: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Path:
    """A choice for the segments so far: bytes kept, seconds, the largest peak, and what the last segment keeps."""

    bytes: int
    seconds: float
    peak: int
    kept: Kept
    before: _Path | None = None


_START = _Path(0, 0.0, 0, frozenset())


def needed_for(model: ir.Model, loss: str) -> list[ir.Node]:
    """Return the nodes that a value depends on, in order, with its own; none where no node makes it."""
    found = set[ir.Node]()
    stack: list[ir.Node | None] = [node for node in model.graph if loss in (one.name for one in node.outputs)]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found.add(node)
            stack += [value.producer() for value in node.inputs if value is not None]
    return [node for node in model.graph if node in found]


@dataclass(slots=True)
class ForwardPass:
    """The nodes that a loss depends on, and their values: sizes, who reads them, and where the graph may be cut."""

    nodes: list[ir.Node]
    read: set[ir.Value]
    """Values that nodes behind the loss read, but for their shapes."""
    sizes: dict[ir.Value, int]
    free: set[ir.Value]
    """Values that always stay: constants, small ones, and those that cannot be computed again."""
    seconds: dict[ir.Node, float]
    cuts: list[int] = field(default_factory=list)
    """The number of nodes before each place where a segment may end, the last is the end."""
    _last: dict[ir.Value, int] = field(default_factory=dict)
    """By value that is not free: the place of the last node that reads it."""
    _segments: dict[int, list[_Segment]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ir.Model, loss: str) -> ForwardPass:
        """Return the forward pass of a loss in a model that has its gradients."""
        order = list(model.graph)
        nodes = needed_for(model, loss)
        behind = order[order.index(nodes[-1]) + 1 :]
        typical = typical_numbers(model)
        made = [value for node in nodes for value in node.outputs if value.name]
        sizes = {value: value_bytes(value, typical) for value in made}
        read = {value for node in behind if not _reads_shape(node) for value in node.inputs if value in sizes}
        largest, work, rates = max(sizes.values()), Work(OPERATORS, typical), Roofline((), OPERATORS)
        seconds, free = {}, set[ir.Value]()
        for node in nodes:
            cost = kernel_cost([NodeView(node)], work)
            seconds[node] = max(cost.flops / rates.flops_per_second, cost.bytes / rates.bytes_per_second)
            taken = max((sizes.get(value, 0) for value in node.inputs if value is not None), default=0)
            least = max(largest, taken) / SMALL
            free |= {one for one in node.outputs if one.name and (_stays(node) or sizes[one] <= least)}
        self = cls(nodes, read - free, sizes, free, seconds)
        self._last = {value: place for place, node in enumerate(nodes) for value in node.inputs if value in sizes}
        self.cuts = self._cuts()
        return self

    # ---- Where to cut --------------------------------------------------------------------------------------------

    def _cuts(self) -> list[int]:
        """Return the places where fewest bytes cross, one in each of `MOST_CUTS` parts of like bytes, and the end."""
        changes, gathered, total = [0] * (len(self.nodes) + 1), 0, max(self.bytes_read, 1)
        part = [0] * len(self.nodes)
        for place, node in enumerate(self.nodes):
            part[place] = gathered * MOST_CUTS // total
            gathered += self._bytes(self.read & set(node.outputs))
            for value in node.outputs:
                if value not in self.free and self._last.get(value, place) > place:
                    changes[place + 1] += self.sizes[value]
                    changes[self._last[value] + 1] -= self.sizes[value]
        crossing = list(accumulate(changes))  # by the number of nodes before a place
        best: dict[int, int] = {}
        for place in range(1, len(self.nodes)):
            known = best.get(part[place])
            if crossing[place] and (known is None or crossing[place] < crossing[known]):
                best[part[place]] = place
        return [*sorted(best.values()), len(self.nodes)]

    # ---- Choices -------------------------------------------------------------------------------------------------

    def by_min_cut(self) -> Kept:
        """Return the fewest bytes of which the backward pass follows without products computed again."""
        network = Network()
        vertices: dict[ir.Value, tuple[int, int]] = {}
        for value, size in self.sizes.items():
            if value not in self.free:
                vertices[value] = (network.vertex(), network.vertex())
                network.arc(*vertices[value], size)
        for node in self.nodes:
            fixed = _is_fixed(node)
            for output in (one for one in node.outputs if one in vertices):
                sources = [vertices[one] for one in node.inputs if one in vertices]
                if fixed:
                    network.arc(SOURCE, vertices[output][0], INFINITE)
                for source in sources:
                    network.arc(source[1], vertices[output][0], INFINITE)
        for value in self.read:
            network.arc(vertices[value][1], SINK, INFINITE)
        side = network.sink_side()
        return frozenset(value for value, (begin, end) in vertices.items() if end in side and begin not in side)

    def by_root(self) -> Kept:
        """Return Chen's choice: as many segments as the root of the number of cuts, of like bytes; the last is kept."""
        count = max(round(math.sqrt(len(self.cuts))), 1)
        share = self._bytes(self.read) / count
        path, start = _START, 0
        for end in self.cuts[:-1]:
            if self._bytes(self._made_in(start, end) & self.read) >= share:
                path, start = _then(path, self._segment(start, end, frozenset())), end
        last = self._made_in(start, self.cuts[-1]) & self.read
        return _kept(_then(path, self._segment(start, self.cuts[-1], last)))

    def cheapest(self, budget: int) -> Kept | None:
        """Return the choice of fewest seconds whose peak is within a budget; None where there is none."""
        grain = max(budget // GRAINS, 1)
        fronts: dict[int, list[_Path]] = {0: [_START]}
        for end, segments in self.segments().items():
            best: dict[int, _Path] = {}
            for segment in segments:
                for path in (_then(one, segment) for one in fronts[segment.start]):
                    known = best.get(path.bytes // grain)
                    if path.peak <= budget and (known is None or path.seconds < known.seconds):
                        best[path.bytes // grain] = path
            fronts[end] = _front(best.values())
        found = min(fronts[self.cuts[-1]], key=lambda path: path.seconds, default=None)
        return None if found is None else _kept(found)

    def segments(self) -> dict[int, list[_Segment]]:
        """Return, by their end, the segments that may be: those between neighbouring cuts in three ways each."""
        if not self._segments:
            cut = self.by_min_cut()
            for end in self.cuts:
                found = self._segments[end] = []
                starts = [one for one in (0, *self.cuts) if one < end]
                for start in starts:
                    read, ways = self._made_in(start, end) & self.read, [frozenset[ir.Value]()]
                    if start == starts[-1]:
                        ways += [cut & self._made_in(start, end), read]
                    found += [self._segment(start, end, kept) for kept in ways]
        return self._segments

    def _segment(self, start: int, end: int, kept: Kept) -> _Segment:
        """Return a segment that keeps values for itself, and those that later ones read."""
        made = self._made_in(start, end)
        own = kept | frozenset(value for value in made if self._last.get(value, 0) >= end)
        read = (made & self.read) - own
        there = own | (self.sizes.keys() - made)  # what comes from before the segment is kept there
        seconds = sum(self.seconds[one] for one in self.computed_again(there, read))
        return _Segment(start, own, self._bytes(own), self._bytes(read), seconds)

    def _bytes(self, values: Collection[ir.Value]) -> int:
        return sum(self.sizes[value] for value in values)

    def _made_in(self, start: int, end: int) -> Kept:
        made = (value for node in self.nodes[start:end] for value in node.outputs)
        return frozenset(value for value in made if value in self.sizes and value not in self.free)

    def seconds_again(self, kept: Kept) -> float:
        """Return the time of what is computed again where so much is kept."""
        return sum(self.seconds[node] for node in self.computed_again(kept, self.read))

    @property
    def bytes_read(self) -> int:
        """The bytes of all values that the backward pass reads: what is kept where nothing is computed again."""
        return self._bytes(self.read)

    def computed_again(self, kept: Collection[ir.Value], wanted: Collection[ir.Value]) -> set[ir.Node]:
        """Return the nodes that give wanted values of those that are kept or free."""
        found, stack = set[ir.Node](), [value for value in wanted if value not in kept]
        while stack:
            node = stack.pop().producer()
            if node is not None and node not in found:
                found.add(node)
                stack += [one for one in node.inputs if one in self.sizes and one not in kept and one not in self.free]
        return found


def _front(paths: Collection[_Path]) -> list[_Path]:
    """Return the paths that no other beats in bytes and seconds."""
    front: list[_Path] = []
    for path in sorted(paths, key=lambda one: (one.bytes, one.seconds)):
        if not front or path.seconds < front[-1].seconds:
            front.append(path)
    return front


def _then(path: _Path, segment: _Segment) -> _Path:
    total = path.bytes + segment.bytes
    peak = max(path.peak, total + segment.again)
    return _Path(total, path.seconds + segment.seconds, peak, segment.kept, path)


def _kept(path: _Path) -> Kept:
    kept, one = set[ir.Value](), path
    while one.before is not None:
        kept |= one.kept
        one = one.before
    return frozenset(kept)


def _reads_shape(node: ir.Node) -> bool:
    return has_trait(node, Trait.SHAPE_ONLY)


def _stays(node: ir.Node) -> bool:
    """Whether what a node gives is not computed again: constants, random numbers, what bodies give, shapes."""
    graphs = any(one.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for one in node.attributes.values())
    constant = all(constant_tensor(value) is not None for value in node.outputs)
    return graphs or constant or has_trait(node, Trait.NONDETERMINISTIC) or _reads_shape(node)


def _is_fixed(node: ir.Node) -> bool:
    operator = OPERATORS.get(node.op_type, node.domain)
    return operator is None or bool(operator.traits & FIXED)
