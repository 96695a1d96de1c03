"""The plan's rows, read off from the decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.partition.annotate_target import lost_to
from graft.partition.costs import Work
from graft.partition.graph import IndexedTree, is_call
from graft.partition.partition_graph import Cut, GraphCuts
from graft.partition.plan import Placement
from graft.partition.region import COMPOSITE_DOMAIN, Functions


def placements(
    tree: IndexedTree, cuts: GraphCuts, functions: Functions, backends: Sequence[str], work: Work
) -> Iterator[Placement]:
    """Yield the placement of every operator in the model's order, those of bodies after their node."""
    graph = tree.graph
    cut_of: dict[int, Cut] = {node: cut for cut in cuts.cuts for node in cut.nodes}
    for number, view in enumerate(graph.views):
        if is_call(view.node):
            yield from _called(view.node, functions, backends, work)
            continue
        unit = cuts.units.units[cuts.units.unit_of[number]]
        row = Placement(
            graph.names[number],
            view.op_type,
            cuts.annotation.placement[cuts.units.unit_of[number]] or "",
            cut_of[number].name,
            unit.group.composite.name if unit.group is not None else "",
            work.flops(view),
            {name: reject for name in backends if (reject := cuts.annotation.rejects.get((number, name))) is not None},
        )
        yield row
        for key, body in tree.bodies.get(number, {}).items():
            if number in cuts.inner:
                yield from placements(body, cuts.inner[number][key], functions, backends, work)
            else:
                yield from _inherited(body, row, work)


def _inherited(tree: IndexedTree, owner: Placement, work: Work) -> Iterator[Placement]:
    """Yield the operators of a body that goes where its node goes."""
    for number, view in enumerate(tree.graph.views):
        yield Placement(
            tree.graph.names[number],
            view.op_type,
            owner.backend,
            owner.region,
            owner.composite,
            work.flops(view),
            owner.reasons,
        )
        for body in tree.bodies.get(number, {}).values():
            yield from _inherited(body, owner, work)


def _called(call: ir.Node, functions: Functions, backends: Sequence[str], work: Work) -> Iterator[Placement]:
    """Yield the operators of a region of an earlier partitioning."""
    function = functions[call.op_identifier()]
    backend = function.metadata_props["Compiler"]
    reasons: dict[str, Reject] = {name: lost_to(backend) for name in backends if name != backend}
    for node in function:
        if node.domain == COMPOSITE_DOMAIN:
            body = functions[node.op_identifier()]
            composite, inner = body.metadata_props["Composite"], list(body)
        else:
            composite, inner = "", [node]
        for member in inner:
            view = NodeView(member)
            yield Placement(view.name, view.op_type, backend, function.name, composite, work.flops(view), reasons)
