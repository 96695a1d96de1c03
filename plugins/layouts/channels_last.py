"""Images with channels last, where a backend asks for them (`Backend.channels_last`), in the graph of its region.

Transposes stand where an image passes between what has channels last and what has them first: at the region's
borders, and around operators for which the order of axes matters. They are kernels named `TRANSPOSE`, which Graft
computes itself; one stands for all readers of an image. What is elementwise has channels last where all its images
have. Shapes are those in memory: (n, h, w, c).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.plugins.json_graph import TRANSPOSE, BodyOperator, Entry, JsonGraph, JsonNode

Contents = Mapping[str, np.ndarray]


def with_channels_last(graph: JsonGraph, contents: Contents, operators: Collection[str]) -> tuple[JsonGraph, Contents]:
    """Return a graph in which ``operators`` read and write images with channels last, and its constants by name.

    What is in a composite beside them is elementwise. Constants that are broadcast over such images are stored anew.
    """
    if not any(row.op in operators for node in graph.kernels for row in node.body):
        return graph, contents
    return _Layouts(graph, dict(contents), frozenset(operators)).result()


def order_of(rank: int) -> tuple[int, ...]:
    """Return the axes of an image in the order in which they are stored: channels, axis 1, at the end."""
    return (0, *range(2, rank), 1)


def _stored(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(shape[axis] for axis in order_of(len(shape)))


@dataclass(slots=True)
class _Layouts:
    graph: JsonGraph
    contents: dict[str, np.ndarray]
    operators: frozenset[str]
    nodes: list[JsonNode] = field(default_factory=list)
    places: dict[tuple[Entry, int], Entry] = field(default_factory=dict)
    """Where an entry of the graph is in the new one: as it was (0), or with channels last as an image of a rank."""

    def result(self) -> tuple[JsonGraph, Contents]:
        last = self._last()
        for number, node in enumerate(self.graph.nodes):
            if node.op == "kernel":
                self._kernel(number, node, last)
            else:
                self._add(node, (Entry(number), 0))
        heads = tuple(self._read(head, 0) for head in self.graph.heads)
        return replace(self.graph, nodes=tuple(self.nodes), heads=heads), self.contents

    def _shape(self, entry: Entry) -> tuple[Any, ...]:
        return self.graph.nodes[entry.node].shape[entry.index] or ()

    def _is_constant(self, entry: Entry) -> bool:
        return self.graph.nodes[entry.node].op == "const"

    # ---- Which images have channels last ----

    def _last(self) -> set[Entry]:
        """Return the images that are made with channels last, and the inputs that have to be transposed anyway."""
        kernels = [(number, node) for number, node in enumerate(self.graph.nodes) if node.op == "kernel"]
        last = {entry for number, node in kernels for entry in self._made(number, node)}
        wanted = {entry for _, node in kernels if self._asks(node) for entry in self._images(node)}
        last |= {entry for entry in wanted if self.graph.nodes[entry.node].op == "input"}
        count = -1
        while count != len(last):
            count = len(last)
            for number, node in kernels:
                if not self._asks(node) and not last.issuperset(self._images(node)):
                    last -= set(self._made(number, node))
        return last

    def _asks(self, node: JsonNode) -> bool:
        return any(row.op in self.operators for row in node.body)

    def _made(self, number: int, node: JsonNode) -> list[Entry]:
        """Return the outputs that may have channels last: images, beside an operator that asks or elementwise."""
        made = [Entry(number, index) for index, shape in enumerate(node.shape) if len(shape or ()) > 2]
        others = [OPERATORS.get(row.op, row.domain) for row in node.body if row.op not in self.operators]
        is_elementwise = all(row is not None and Trait.ELEMENTWISE in row.traits for row in others)
        computed = [self._shape(one) for one in node.inputs if not one.is_absent and not self._is_constant(one)]
        of_images = self._asks(node) or all(len(shape) == len(node.shape[0] or ()) for shape in computed)
        return made if is_elementwise and of_images else []

    def _images(self, node: JsonNode) -> list[Entry]:
        """Return the images that a kernel reads and that are computed."""
        found = (node.inputs[place] for place in self._places_of_images(node))
        return [entry for entry in found if not self._is_constant(entry)]

    def _places_of_images(self, node: JsonNode) -> set[int]:
        """Return which inputs lie as the result does: of products the first, of others those of its rank.

        What is elementwise broadcasts constants of lower ranks, too.
        """
        rank, found = len(node.shape[0] or ()), set()
        for row in node.body:
            known = OPERATORS.get(row.op, row.domain)
            is_product = known is not None and known.channels_of_weights is not None
            for position, source in enumerate(row.inputs[:1] if is_product else row.inputs):
                entry = node.inputs[source[1]] if source is not None and source[0] == -1 else Entry(-1)
                if source is None or entry.is_absent:
                    continue
                shape = self._shape(entry)
                is_first = row.op in self.operators and position == 0 and len(shape) > 2
                is_broadcast = row.op not in self.operators and self._is_constant(entry) and prod(shape) > 1
                if is_first or len(shape) == rank or (is_broadcast and len(shape) < rank):
                    found.add(source[1])
        return found

    # ---- The new graph ----

    def _kernel(self, number: int, node: JsonNode, last: set[Entry]) -> None:
        made = [Entry(number, index) for index in range(len(node.dtype))]
        is_last, rank = self._asks(node) or not last.isdisjoint(made), len(node.shape[0] or ())
        images = self._places_of_images(node) if is_last else set()
        inputs = []
        for place, entry in enumerate(node.inputs):
            own = max(len(self._shape(entry)), rank) if place in images else 0
            inputs.append(entry if entry.is_absent else self._read(entry, own))
        shapes = tuple(
            _stored(shape) if entry in last and shape else shape for entry, shape in zip(made, node.shape, strict=True)
        )
        axis = {"axis": order_of(rank).index(node.attributes["axis"] % rank)} if self._has_axis(node, is_last) else {}
        body = tuple(replace(row, attributes={**row.attributes, **axis}) if axis else row for row in node.body)
        new = replace(
            node, inputs=tuple(inputs), shape=shapes, body=body, attributes={**node.attributes, **axis},
        )  # fmt: skip
        self._add(new, *((entry, rank if entry in last else 0) for entry in made))

    def _has_axis(self, node: JsonNode, is_last: bool) -> bool:
        """Whether a kernel is one operator along an axis of its images."""
        return is_last and len(node.body) == 1 and isinstance(node.attributes.get("axis"), int)

    def _add(self, node: JsonNode, *entries: tuple[Entry, int]) -> None:
        self.places |= {entry: Entry(len(self.nodes), index) for index, entry in enumerate(entries)}
        self.nodes.append(node)

    def _read(self, entry: Entry, rank: int) -> Entry:
        """Return where an image is with channels last, or first (0); it is transposed where it is not there yet."""
        if (entry, rank) not in self.places:
            made = self._constant(entry, rank) if self._is_constant(entry) else self._transposed(entry, rank)
            self._add(made, (entry, rank))
        return self.places[entry, rank]

    def _constant(self, entry: Entry, rank: int) -> JsonNode:
        node = self.graph.nodes[entry.node]
        array = self.contents[node.name]
        name = f"{node.name}.channels_last.{rank}"
        image = array.reshape((1,) * (rank - array.ndim) + array.shape)
        self.contents[name] = np.ascontiguousarray(image.transpose(order_of(rank)))
        return replace(node, name=name, shape=(self.contents[name].shape,))

    def _transposed(self, entry: Entry, rank: int) -> JsonNode:
        source, shape = self.graph.nodes[entry.node], self._shape(entry)
        order = order_of(len(shape))
        perm = order if rank else tuple(order.index(axis) for axis in range(len(order)))
        known = {"perm": list(perm)}
        return JsonNode(
            "kernel", TRANSPOSE, (source.dtype[entry.index],), (_stored(shape) if rank else shape,),
            (self.places[entry, 0 if rank else len(shape)],), known, (BodyOperator("Transpose", ((-1, 0),), known),),
            ((0, 0),), source.origin,
        )  # fmt: skip
