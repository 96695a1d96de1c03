"""An artifact, a plan, or a model that is planned here, as a graph with each operator's backend and reasons, and times.

Regions are groups, backends are colours, and what passes between backends is an overlay of edges. A plan knows
operators and no tensors, so that its graph has no edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import onnx_ir as ir
from model_explorer import (
    Adapter,
    AdapterMetadata,
    GetConfigEditorsResult,
    ModelExplorerGraphs,
    NodeDataProvider,
    NodeDataProviderFilter,
    NodeDataProviderMetadata,
    NodeDataProviderResult,
)
from model_explorer import graph_builder as gb
from model_explorer.node_data_builder import GradientItem, GraphNodeData, NodeDataResult

from graft.compiler.driver import prepare
from graft.compiler.request import choose, plugins
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.partition.placement.partitioner import partition
from graft.partition.plan import Placement, Plan
from graft.report.artifact_contents import embedded_model
from graft.report.facts import OperatorFacts, Report, Tensor, Vertex
from graft.report.gathering import report_on_artifact, report_on_model
from graft.report.html import type_text
from graft.runtime.loading import load

COLOURS = ("#dbe7ff", "#ffe3c2", "#d2f2e0", "#e7dcff", "#ffd9e8", "#cfeff3", "#f2e8b8", "#e3e8c4")
RUNS = 10
NOBODY = "#ffc9c4"
"""Of an operator that no backend took."""


class GraftAdapter(Adapter):  # type: ignore[misc]
    """Opens artifacts, plans, ONNX models and programs of `torch.export`."""

    metadata: ClassVar[AdapterMetadata] = AdapterMetadata(
        id="graft", name="Graft: placement and reasons", fileExts=["graft", "onnx", "pt2", "json"],
        description="Which backend gets each operator, and why the others do not",
    )  # fmt: skip

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """Return the graph of a file; raise GraftError, which Model Explorer shows, if it cannot be read or planned."""
        if Path(model_path).suffix == ".json":
            return {"graphs": [graph_of_plan(Path(model_path).name, Plan.load(model_path))]}
        return {"graphs": [graph_of(report_of(Path(model_path)))]}


class GraftTimes(NodeDataProvider):  # type: ignore[misc]
    """Runs an artifact, and shows at each operator the microseconds of the call that computes it and its neighbours."""

    metadata: ClassVar[NodeDataProviderMetadata] = NodeDataProviderMetadata(
        id="graft_times", name="Graft: microseconds", description="The least of ten runs on random inputs",
        filter=NodeDataProviderFilter(modelFileExts=["graft"], adapterIds=["graft"]),
    )  # fmt: skip

    def get_config_editors(self, provider_id: str) -> GetConfigEditorsResult:
        """Return that nothing is asked."""
        return GetConfigEditorsResult([])

    def run(
        self, provider_id: str, model_path: str, graph_id: str, config_values: dict[str, Any], graph: object
    ) -> NodeDataProviderResult:
        """Return the times by node of the graph, or what is wrong with the file."""
        try:
            times = times_of(Path(model_path))
            report = report_on_artifact(Path(model_path))
        except GraftError as error:
            return NodeDataProviderResult(error=str(error))
        numbers = {
            report.operators[one.members[0]].node: n for n, one in enumerate(report.graph.vertices) if one.members
        }
        results = {str(numbers[name]): NodeDataResult(times[name]) for name in times if name in numbers}
        gradient = [GradientItem(0, bgColor="#ffffff"), GradientItem(1, bgColor="#e8590c")]
        return NodeDataProviderResult(GraphNodeData(results, gradient=gradient))


def times_of(path: Path) -> dict[str, float]:
    """Return the microseconds of the call that computes each node of an artifact; raise GraftError if it cannot run."""
    program = load(path)
    arrays = sample_inputs(ir.from_proto(embedded_model(path)))
    runs = [program.profile(*(arrays[one.name] for one in program.inputs)) for _ in range(RUNS)]
    least = [min(took) for took in zip(*([row[2] for row in run] for run in runs), strict=True)]
    return {name: took / 1000 for (names, _, _), took in zip(runs[0], least, strict=True) for name in names}


def report_of(path: Path) -> Report:
    """Return what is known of an artifact, or of a model with all backends that are installed."""
    if path.suffix == ".graft":
        return report_on_artifact(path)
    return report_on_model(path.name, partition(prepare(path, manager=plugins()), choose(None)), plugins())


def graph_of(report: Report) -> gb.Graph:
    """Return a report's operators as a graph; groups are regions."""
    vertices = report.graph.vertices
    nodes = [_node(report, number, vertex) for number, vertex in enumerate(vertices)]
    crossing = []
    for link in report.graph.links:
        names = ", ".join(f"{one.name} {type_text(one)}" for one in link.values)
        nodes[link.target].incomingEdges.append(gb.IncomingEdge(str(link.source), names))
        ends = [vertices[end].backend for end in (link.source, link.target)]
        if ends[0] != ends[1]:
            crossing.append(gb.Edge(str(link.source), str(link.target), names))
    overlay = gb.EdgeOverlay("between backends", "#c0332b", crossing)
    data = gb.EdgeOverlaysData("Graft", overlays=[overlay])
    attributes = {"": {"placement": report.plan.summary(), **report.environment}}
    return gb.Graph(
        report.title, nodes, groupNodeAttributes=attributes, tasksData=gb.TasksData([data] if crossing else [])
    )  # fmt: skip


def graph_of_plan(title: str, plan: Plan) -> gb.Graph:
    """Return a plan's operators, in the model's order; groups are regions."""
    nodes = [_operator(str(number), plan, row, {}) for number, row in enumerate(plan.placements)]
    return gb.Graph(title, nodes, groupNodeAttributes={"": {"placement": plan.summary()}})


def _node(report: Report, number: int, vertex: Vertex) -> gb.GraphNode:
    if vertex.kind != "operator":
        return gb.GraphNode(str(number), vertex.name, attrs=_tensors(vertex.kind, vertex.inputs + vertex.outputs))
    if not vertex.members:
        return gb.GraphNode(str(number), vertex.name)
    (member,) = vertex.members
    facts = report.operators[member]
    node = _operator(str(number), report.plan, facts, facts.attributes)
    node.attrs += [one for kind in ("inputs", "constants", "outputs") for one in _tensors(kind, getattr(facts, kind))]
    return node


def _operator(number: str, plan: Plan, row: Placement | OperatorFacts, attributes: Mapping[str, str]) -> gb.GraphNode:
    told = {
        "node": row.node, "backend": plan.text_of(row.backend) or "nobody", "composite": row.composite,
        "FLOPs": str(row.flops), **{f"why not {name}": str(one) for name, one in row.reasons.items()}, **attributes,
    }  # fmt: skip
    attrs = [gb.KeyValue(key, value) for key, value in told.items() if value]
    style = gb.GraphNodeStyle(backgroundColor=_colour(plan, row.backend))
    return gb.GraphNode(number, row.op_type, namespace=row.region, attrs=attrs, style=style)


def _tensors(kind: str, tensors: tuple[Tensor, ...]) -> list[gb.KeyValue]:
    return [gb.KeyValue(f"{kind.rstrip('s')} {one.name}", type_text(one)) for one in tensors]


def _colour(plan: Plan, backend: str) -> str:
    return COLOURS[plan.backends.index(backend) % len(COLOURS)] if backend in plan.backends else NOBODY
