"""A region as products in order, and the procedure that calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graft.errors import CompileError
from graft.plugins.cuda.cublas.products import Row, row
from graft.plugins.graph_symbols import ModelSymbols
from graft.plugins.json_codegen import serialize
from graft.plugins.json_graph import Entry, JsonNode
from graft.runtime.extents import Extent
from graft.runtime.procedure import Call, Procedure, TensorSpec

if TYPE_CHECKING:
    from graft.partition.region import Region


class RegionProducts:
    """The rows of a region's products, its constants, and the calls over its tensors."""

    def __init__(self, region: Region, precision: str) -> None:
        self.rows: list[Row] = []
        self.constants: dict[str, np.ndarray] = {}
        self._region = region
        self._graph, self._contents = serialize(region, ModelSymbols())
        self._tensors: list[TensorSpec] = []
        self._places: dict[tuple[int, int], int] = {}
        self._calls: list[Call] = []
        for number, node in enumerate(self._graph.inputs):
            self._places[self._graph.nodes.index(node), 0] = len(self._tensors)
            self._tensors.append(TensorSpec(node.name, node.dtype[0], _known(node), "input", index=number))
        for number, node in enumerate(self._graph.nodes):
            if node.op == "kernel":
                self._product(number, node, precision)

    def procedure(self) -> Procedure:
        """Return the calls over the region's tensors; arena tensors have no offset yet."""
        outputs = tuple(self._tensor(head) for head in self._graph.heads)
        inputs = tuple(range(len(self._graph.inputs)))
        return Procedure(self._region.name, tuple(self._tensors), inputs, outputs, tuple(self._calls))

    def _product(self, number: int, node: JsonNode, precision: str) -> None:
        name = f"{self._region.name}_{number}"
        shapes = [_known(self._graph.nodes[one.node], one.index) for one in node.inputs]
        self.rows.append(row(name, node, precision, shapes))
        inputs = tuple(map(self._tensor, node.inputs))
        self._places[number, 0] = len(self._tensors)
        self._tensors.append(TensorSpec(f"{node.name}.{number}", node.dtype[0], _known(node), "arena"))
        schedule = {"strategy": "cublas: cublasLtMatmul"}
        self._calls.append(
            Call("call", inputs, (self._places[number, 0],), 0, name, origin=node.origin, schedule=schedule)
        )

    def _tensor(self, entry: Entry) -> int:
        """The tensor of an entry: known, or a constant that is used for the first time."""
        place = (entry.node, entry.index)
        if place not in self._places:
            node = self._graph.nodes[entry.node]
            self.constants[node.name] = self._contents[node.name]
            self._places[place] = len(self._tensors)
            spec = TensorSpec(node.name, node.dtype[0], _known(node), "constant", constant=node.name)
            self._tensors.append(spec)
        return self._places[place]


def _known(node: JsonNode, index: int = 0) -> tuple[Extent, ...]:
    """Return the shape of an output; raise CompileError for one that is not known before a run."""
    shape = node.shape[index]
    extents = tuple(extent for extent in shape or () if extent is not None)
    if shape is None or len(extents) < len(shape):
        raise CompileError(f"{node.where}: its shape is not known before a run", node=node.name)
    return extents
