"""Reports of models and of artifacts, built from their plans and partitioned models."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

import graft
from graft.compiler.request import choose
from graft.core.graph.view import constant_tensor
from graft.partition.graph import RUNTIME
from graft.partition.placement.problem import Partitioned
from graft.partition.plan import Plan
from graft.report.facts import INPUT, OUTPUT, Boundary, Drawing, Link, OperatorFacts, Report, Tensor, Vertex
from graft.report.trace import Trace, attributes_of, tensor_of
from graft.runtime.program import Program
from graft.training.kernel_memory import courses_of

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager


def report_on_model(title: str, result: Partitioned, manager: PluginManager | None = None) -> Report:
    """Return the report of a model that was planned on this machine; plugins add their sections."""
    environment = {
        "graft": graft.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
    }
    if manager is not None:
        chosen = choose(result.plan.texts, manager) if result.plan.backends else []
        versions = {one.name: one.version() for one in chosen}
        environment |= {f"backend {name}": text for name, text in versions.items() if text}
    return _report(title, result.plan, result.model, environment, None, manager)


def report_on_artifact(path: Path, manager: PluginManager | None = None) -> Report:
    """Return the report of an artifact; raise ArtifactError or PlanError if it is damaged or holds no plan."""
    from graft.errors import ArtifactError
    from graft.plugins.registry.module_reports import module_reports
    from graft.report.artifact_contents import embedded_model, read_manifest
    from graft.runtime.artifact import read

    manifest = read_manifest(path)
    try:
        metadata = manifest["metadata"]
        plan = Plan.from_json(metadata["plan"])
        targets = [f"{one['arch']} {' '.join(one.get('features', ()))}".rstrip() for one in manifest["targets"]]
        environment = {
            "graft": str(metadata["graft"]),
            "producer": str(manifest["producer"]),
            "format": str(manifest["format"]),
            "ABI": str(manifest["abi"]),
            "targets": ", ".join(targets),
            "threads": str(metadata["threads"]),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"'{path}' has a damaged manifest: {type(error).__name__} {error}", path=str(path)
        ) from error
    report = _report(path.name, plan, ir.from_proto(embedded_model(path)), environment, manifest, manager)
    if manager is None or not any(row.get("plugin") for row in manifest["modules"]):
        return report
    reports = module_reports(read(path).modules, manager).values()
    return replace(report, sections=(*report.sections, *((one.title, one.html) for one in reports if one.html)))


def report_on_program(title: str, program: Program) -> Report:
    """Return the report of a compiled program; raise PlanError where it holds no plan."""
    description = program.description
    model = ir.from_proto(onnx.load_model_from_string(description.files["model.onnx"]))
    return _report(title, Plan.of(program), model, {"graft": str(description.metadata["graft"])}, None, None)


def _report(
    title: str,
    plan: Plan,
    model: ir.Model,
    environment: Mapping[str, str],
    manifest: Mapping[str, Any] | None,
    manager: PluginManager | None,
) -> Report:
    trace = Trace(model)
    numbers = {step.view.name: number for number, step in enumerate(trace.steps)}
    operators, step_of = [], {}
    for number, row in enumerate(plan.placements):
        facts = OperatorFacts(
            row.node, row.op_type, row.backend, row.region, row.composite, row.flops, dict(row.reasons),
            **(_values(trace, numbers[row.node]) if row.node in numbers else {}),
        )  # fmt: skip
        operators.append(facts)
        if row.node in numbers:
            step_of[numbers[row.node]] = number
    shown = _Shown(trace, operators, step_of)
    report = Report(
        title, plan, tuple(operators), shown.drawing(by_region=True), shown.drawing(by_region=False),
        shown.boundaries(), dict(environment), manifest, courses_of(model),
    )  # fmt: skip
    return report if manager is None else _with_sections(report, manager)


def _with_sections(report: Report, manager: PluginManager) -> Report:
    """Ask the plugins for their sections."""
    return replace(report, sections=tuple(manager.report_sections(report)))


def _values(trace: Trace, number: int) -> dict[str, Any]:
    step = trace.steps[number]
    reads = list(dict.fromkeys(step.reads))
    return {
        "inputs": tuple(tensor_of(value) for value in reads if constant_tensor(value) is None),
        "constants": tuple(tensor_of(value) for value in reads if constant_tensor(value) is not None),
        "outputs": tuple(tensor_of(value) for value in step.writes),
        "attributes": attributes_of(step.view.node),
    }


class _Shown:
    """The graphs to draw: vertices are regions, or operators; the model's inputs and outputs are vertices too."""

    def __init__(self, trace: Trace, operators: list[OperatorFacts], step_of: Mapping[int, int]) -> None:
        self._trace = trace
        self._operators = operators
        self._number = step_of

    def drawing(self, by_region: bool) -> Drawing:
        """Return the graph of regions (operators in no region stand alone), or of operators."""
        trace = self._trace
        vertex_of: dict[int, int] = {}
        keys: dict[object, list[int]] = {}
        for index, step in enumerate(trace.steps):
            keys.setdefault(step.region if by_region and step.region else index, []).append(index)
        for number, steps in enumerate(keys.values()):
            vertex_of.update(dict.fromkeys(steps, number))
        reads = self._reads(vertex_of)
        vertices = [self._vertex(number, *item, reads) for number, item in enumerate(keys.items())]
        links: dict[tuple[int, int], list[Tensor]] = {}
        for value, readers in reads.items():
            if value in trace.producer:
                source = vertex_of[trace.producer[value]]
            elif value in trace.inputs:
                source = len(vertices)
                vertices.append(Vertex("input", value.name or "", INPUT, outputs=(tensor_of(value),)))
            else:
                continue  # a constant, or what control flow hands to its body
            for reader in readers:
                if reader != source:
                    links.setdefault((source, reader), []).append(tensor_of(value))
        for value in trace.outputs:
            if value in trace.producer:
                source = vertex_of[trace.producer[value]]
                links[source, len(vertices)] = [tensor_of(value)]
                vertices.append(Vertex("output", value.name or "", OUTPUT, inputs=(tensor_of(value),)))
        return Drawing(tuple(vertices), tuple(Link(*ends, tuple(values)) for ends, values in links.items()))

    def _reads(self, vertex_of: Mapping[int, int]) -> dict[ir.Value, dict[int, None]]:
        """Return the vertices that read each value, in order."""
        reads: dict[ir.Value, dict[int, None]] = {}
        for index, step in enumerate(self._trace.steps):
            for value in step.reads:
                reads.setdefault(value, {})[vertex_of[index]] = None
        return reads

    def _vertex(
        self, number: int, key: object, steps: list[int], reads: Mapping[ir.Value, Mapping[int, None]]
    ) -> Vertex:
        trace = self._trace
        members = tuple(self._number[index] for index in steps if index in self._number)
        backend = self._backend(steps[0])
        if isinstance(key, int):
            step = trace.steps[key]
            return Vertex("operator", step.view.name, backend, members)
        inside = {value for index in steps for value in trace.steps[index].writes}
        read = dict.fromkeys(value for index in steps for value in trace.steps[index].reads if value not in inside)
        left = [
            value
            for index in steps
            for value in trace.steps[index].writes
            if value in trace.outputs or any(reader != number for reader in reads.get(value, ()))
        ]
        return Vertex(
            "region", str(key), backend, members,
            tuple(tensor_of(value) for value in read if constant_tensor(value) is None),
            tuple(tensor_of(value) for value in read if constant_tensor(value) is not None),
            tuple(tensor_of(value) for value in left),
        )  # fmt: skip

    def _backend(self, index: int) -> str:
        return self._operators[self._number[index]].backend if index in self._number else RUNTIME

    def _source(self, value: ir.Value) -> str | None:
        """Return the backend that computes a value, `INPUT` for the model's own, None for constants and the like."""
        if value in self._trace.producer:
            return self._backend(self._trace.producer[value])
        return INPUT if value in self._trace.inputs else None

    def boundaries(self) -> tuple[Boundary, ...]:
        """Return what passes between backends, the largest first."""
        trace = self._trace
        readers: dict[ir.Value, set[str]] = {}
        for index, step in enumerate(trace.steps):
            for value in step.reads:
                readers.setdefault(value, set()).add(self._backend(index))
        for value in trace.outputs:
            readers.setdefault(value, set()).add(OUTPUT)
        sizes: dict[tuple[str, str], list[int]] = {}
        for value, targets in readers.items():
            source = self._source(value)
            for target in sorted(targets):
                if source is not None and source != target:
                    sizes.setdefault((source, target), []).append(tensor_of(value).size or 0)
        rows = [Boundary(*ends, len(found), sum(found)) for ends, found in sizes.items()]
        return tuple(sorted(rows, key=lambda row: (-row.size, row.source, row.target)))
