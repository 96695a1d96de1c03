"""Why one operator goes where it goes: its placement, every backend's reason, and how near every composite came."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graft.compiler.api import MODEL_OPTIONS, plan
from graft.compiler.backend_passes import prepare_for, unwanted_passes
from graft.compiler.driver import prepare
from graft.compiler.request import Backends, choose, plugins
from graft.core.graph.dimensions import Dims
from graft.core.graph.view import NodeView
from graft.core.importer.source import Source
from graft.core.operators.all import OPERATORS
from graft.errors import PlanError
from graft.partition.graph import index_tree
from graft.partition.placement.near_misses import explained
from graft.partition.plan import Placement
from graft.partition.policy import PlacementMode, Policy
from graft.patterns.walk import root_operators
from graft.plugins.backend import Backend
from graft.plugins.registry.manager import PluginManager
from graft.runtime.arguments import TEXT, takes
from graft.runtime.system.displayed import Displayed


@dataclass(frozen=True, slots=True)
class PatternAnswer:
    """What became of one composite at a node: ``text`` is "matches", or how far it got and what stopped it."""

    backend: str
    composite: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class NodeExplanation(Displayed):
    """Where a node goes, with every backend's reason, and what the composites that could end in it say."""

    placement: Placement
    patterns: tuple[PatternAnswer, ...]

    def __str__(self) -> str:
        row = self.placement
        where = f"{row.op_type} (node '{row.node}'): {row.backend or 'nobody'}"
        lines = [where + (f", composite {row.composite}" if row.composite else "")]
        lines += [f"{name}: {reject}" for name, reject in row.reasons.items()]
        lines += [f"{one.composite}: {one.text}" for one in self.patterns]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        row = self.placement
        return {
            "node": row.node,
            "op": row.op_type,
            "backend": row.backend,
            "composite": row.composite,
            "reasons": {name: [reject.code, reject.text] for name, reject in row.reasons.items()},
            "patterns": [
                {"backend": one.backend, "composite": one.composite, "code": one.code, "text": one.text}
                for one in self.patterns
            ],
        }


@takes(node=TEXT, **MODEL_OPTIONS)
def explain(
    model: Source,
    node: str,
    backends: Backends = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Dims | None = None,
    policy: Policy | None = None,
    place: PlacementMode | None = None,
    threads: int | None = None,
    precision: str = "float32",
    manager: PluginManager | None = None,
) -> NodeExplanation:
    """Return why a node goes where `graft.plan`, called with the same arguments, places it.

    Patterns see the model after it is simplified, and so does this: ``graft inspect MODEL --stage normalized --text``
    prints it. Raises PlanError if that model has no such node.
    """
    manager = manager or plugins()
    chosen = choose(backends, manager)
    prepared = prepare(model, shapes, manager, unwanted_passes(chosen), dims)
    prepare_for(prepared, chosen)
    placement = plan(
        prepared, backends, policy=policy, place=place, threads=threads, precision=precision, manager=manager
    )
    found = {
        name: view
        for graph in index_tree(prepared.graph, set()).all()
        for name, view in zip(graph.names, graph.views, strict=True)
    }
    if node not in found:
        near = difflib.get_close_matches(node, found, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise PlanError(
            f"the simplified model has no node '{node}'{hint}; "
            "`graft inspect MODEL --stage normalized --text` prints that model",
            node=node,
        )
    return NodeExplanation(placement[node], tuple(_answers(choose(backends, manager), found[node])))


def _answers(backends: Sequence[Backend], view: NodeView) -> list[PatternAnswer]:
    """Return what the composites whose root can be the node say, for every backend the nearest first."""
    result: list[PatternAnswer] = []
    for backend in backends:
        said = []
        for row in backend.patterns:
            roots = root_operators(row.pattern)
            if roots is None or (view.domain, view.op_type) in roots:
                one = explained(backend.name, row, view.node, OPERATORS)
                code = "" if one.found else one.reject.code
                said.append((not one.found, -one.matched, PatternAnswer(backend.name, row.name, code, str(one))))
        result.extend(answer for _, _, answer in sorted(said, key=lambda item: item[:2]))
    return result
