"""Passes that rewrite node by node: the walk, which is the same for all, and what it tells the rewrites."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import onnx_ir as ir

from graft.core.affine.expressions import Ranges
from graft.core.graph.dimensions import ranges_of, unique
from graft.core.graph.traversal import all_graphs


class Names:
    """The names of all values and nodes of a model, its subgraphs included, and fresh ones besides them."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    @cached_property
    def _taken(self) -> set[str]:
        """The names that are taken; most passes over most models want no fresh one."""
        taken: set[str] = set()
        for graph in all_graphs(self._model):
            values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
            taken.update(part.name or "" for part in (*values, *graph))
        return taken

    def fresh(self, near: str) -> str:
        """Return ``near``, with a number where that name is taken, and take it."""
        return unique(near, self._taken)


class Rewriter:
    """What a walk over a model tells the rewrites of its nodes, found out when the first of them asks."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self.names = Names(model)
        self.added_bytes = 0
        """By how much the rewrites of this walk have made constants larger."""

    @cached_property
    def ranges(self) -> Ranges:
        """The ranges of the model's symbols."""
        return ranges_of(self._model)

    @cached_property
    def opsets(self) -> dict[str, int]:
        """The operator sets of the model."""
        return {domain: version for domain, version in self._model.graph.opset_imports.items() if version is not None}

    @cached_property
    def constant_bytes(self) -> int:
        """The bytes of all constants of the model."""
        values = (value for graph in all_graphs(self._model) for value in graph.initializers.values())
        return sum(value.const_value.nbytes for value in values if value.const_value is not None)


@dataclass(frozen=True)
class NodePass:
    """A pass that rewrites node by node (`graft.core.passes.pipeline.Pass`): the walk, which is the same for all."""

    name: ClassVar[str]

    def run(self, model: ir.Model) -> bool:
        """Rewrite every node that was there, bodies after the graphs around them; return whether anything changed."""
        rewriter, changed = Rewriter(model), False
        for graph in list(all_graphs(model)):
            for node in list(graph):
                changed |= node.graph is graph and self.rewrite(node, rewriter)
        return changed

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node and what is around it; return whether anything changed."""
        raise NotImplementedError
