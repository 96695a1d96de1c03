"""Verification: a compiled program against the model it came from, as a whole and region by region.

For each region two errors tell apart who is at fault: *isolated* (the region alone, fed with the reference's values)
and *accumulated* (the region's outputs inside the running program).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from graft.compiler.api import compile_model, program_of
from graft.compiler.request import Request
from graft.core.graph.dimensions import Dims, values_and_ranges
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.measure.differences import Difference, Tolerance
from graft.measure.expected_values import PEERS, evaluate, symbols_in
from graft.measure.parts import whole_of
from graft.measure.vendor_simulators import SIMULATOR, LayerReport, simulated_layers
from graft.partition.policy import Policy
from graft.plugins.registry.manager import MANAGER
from graft.runtime.arguments import DIMS, FEEDS, FLAG, NUMBER, SHAPES, TEXT, TEXTS, WHOLE, instance, optional, takes
from graft.runtime.isolation.options import ISOLATION, Isolations
from graft.runtime.program import Program
from graft.runtime.system.displayed import Displayed

if TYPE_CHECKING:
    from graft.compiler.compiled_model import CompiledModel
    from graft.partition.region import Region
    from graft.plugins.backend import Backend
    from graft.plugins.registry.manager import PluginManager
    from graft.runtime.procedure import ProgramDescription


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One output of the model."""

    name: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class RegionReport:
    """One output of one region."""

    region: str
    backend: str
    output: str
    isolated: Difference
    accumulated: Difference


@dataclass(frozen=True, slots=True)
class BadRegion:
    """The first region, in order of execution, that is at fault: its inputs are as they should be, an output is not."""

    region: str
    backend: str
    nodes: tuple[str, ...]
    """The names of the model's nodes in it."""
    output: str
    """The output with the worst error."""
    difference: Difference
    alone: bool
    """Whether it is wrong by itself, fed with the reference's values; else only inside the program, fed with what the
    regions before it gave."""

    def __str__(self) -> str:
        where = "by itself" if self.alone else "inside the program only"
        error = f"largest error {self.difference.max_abs:.3g}, relative {self.difference.max_rel:.3g}"
        place = f"region '{self.region}' of backend '{self.backend}' (nodes {', '.join(self.nodes)})"
        return f"{place}, output '{self.output}': {error}, {where}"


@dataclass(frozen=True, slots=True)
class VerifyReport(Displayed):
    """The outcome of `verify`."""

    against: str
    rtol: float
    atol: float
    outputs: tuple[OutputReport, ...]
    regions: tuple[RegionReport, ...] = ()
    first_bad: BadRegion | None = None
    layers: tuple[LayerReport, ...] = ()
    """Where it was verified against vendors' simulators."""

    @property
    def ok(self) -> bool:
        """Whether every output, and every region and layer that was checked, is within the tolerance."""
        outputs = all(row.difference.ok for row in self.outputs)
        return outputs and self.first_bad is None and all(row.ok for row in self.layers)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {**asdict(self), "ok": self.ok}


@takes(
    model=SOURCE, program=optional(instance(Program, wanted="a graft.Program")), against=TEXT, per_region=FLAG,
    inputs=optional(FEEDS),
    manager=optional(MANAGER), shapes=optional(SHAPES), dims=optional(DIMS), threads=optional(WHOLE), strict=FLAG,
    without=TEXTS, isolation=optional(ISOLATION),
    policy=optional(instance(Policy, wanted="a graft.Policy")), rtol=NUMBER, atol=NUMBER,
    steps=optional(WHOLE),
)  # fmt: skip
def verify(
    model: Source,
    backends: Sequence[str | Backend] | None = None,
    *,
    program: Program | None = None,
    against: str = "reference",
    per_region: bool = False,
    inputs: Mapping[str, np.ndarray] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Dims | None = None,
    threads: int | None = None,
    strict: bool = False,
    policy: Policy | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    steps: int | None = None,
    manager: PluginManager | None = None,
    without: Collection[str] = (),
    isolation: Isolations | None = None,
) -> VerifyReport:
    """Compare a compiled model with ``reference`` (onnx.reference), ``onnxruntime`` or ``vendor-simulator``.

    ``program`` is compared if it is given (one that was loaded from an artifact, say), else the model is compiled. An
    element passes if ``|y - r| <= atol + rtol * |r|``. With ``steps`` quantised values, which are integers of 8 and 16
    bits and what is dequantised from them, pass instead where they are at most so many steps of their scale apart.
    ``inputs`` default to seeded random ones, with the numbers that ``dims`` gives symbols; ranges in it are what the
    program is compiled for. ``without`` and ``isolation`` are as for `graft.compile`.

    With ``per_region`` every output of every region of the main graph is compared too, and the report names the first
    region that is at fault. No region is where a pass changed what the model computes.

    ``vendor-simulator`` compiles every layer of a backend as a region of its own and holds what the backend's simulator
    (`Backend.simulated`) gives against onnx.reference, and the layer's program, where its device is here, against the
    simulator; the report has ``layers`` and no outputs. ``steps`` is 1 then, if it is left out.

    Raise GraftError for an unknown peer, and what compiling and running raise.
    """
    if against not in (*PEERS, SIMULATOR):
        known = ", ".join((*PEERS, SIMULATOR))
        raise GraftError(f"cannot verify against '{against}'; choose one of {known}", against=against)
    values, ranges = values_and_ranges(dims or {})
    original = load(model, shapes=shapes, dims=ranges)
    feeds = dict(inputs) if inputs is not None else sample_inputs(original, dims=values)
    request = Request(
        backends, threads=threads, strict=strict, policy=policy, manager=manager, without=without, isolation=isolation
    )
    if against != SIMULATOR:
        return _beside(original, request, program, feeds, against, per_region, Tolerance(rtol, atol, steps))
    if program is not None or per_region:
        raise GraftError(f"{SIMULATOR} compiles each layer anew; leave out program and per_region")
    request = replace(request, policy=replace(policy or Policy(), max_region_layers=1))
    tolerance, compiled = Tolerance(rtol, atol, 1 if steps is None else steps), compile_model(original, request)
    rows = simulated_layers(compiled, request.chosen(), feeds, tolerance, _loading(request))
    return VerifyReport(against, rtol, atol, (), layers=tuple(rows))


def _beside(
    original: ir.Model,
    request: Request,
    program: Program | None,
    feeds: Mapping[str, np.ndarray],
    against: str,
    per_region: bool,
    tolerance: Tolerance,
) -> VerifyReport:
    """Compare a program, that of the model unless one is given, with a peer."""
    compiled: CompiledModel | None = None
    if program is None or per_region:
        compiled = compile_model(original, request)
        program = program or _loading(request)(compiled.description)
    names = [value.name or "" for value in original.graph.outputs]
    actual = program.run(feeds)  # first: it says what is wrong with the inputs
    expected = evaluate(original, feeds, names, against)
    own = tolerance.among(original, names)
    outputs = tuple(OutputReport(name, own.judge(actual[name], expected[name], name)) for name in names)
    if not per_region:
        return VerifyReport(against, tolerance.rtol, tolerance.atol, outputs)
    assert compiled is not None
    regions, first_bad = _regions(compiled, feeds, against, own, _loading(request))
    return VerifyReport(against, tolerance.rtol, tolerance.atol, outputs, tuple(regions), first_bad)


def _loading(request: Request) -> Callable[[ProgramDescription], Program]:
    """Return what loads programs as a request says."""
    return partial(
        program_of, threads=request.threads, backends=request.backends, manager=request.plugins,
        isolation=request.isolated(request.chosen()),
    )  # fmt: skip


def _regions(
    compiled: CompiledModel,
    feeds: Mapping[str, np.ndarray],
    against: str,
    tolerance: Tolerance,
    load_one: Callable[[ProgramDescription], Program],
) -> tuple[list[RegionReport], BadRegion | None]:
    """Return a row for every output of every region of the main graph, and the first that is at fault."""
    calls = compiled.region_calls()
    wanted = {value.name or "": value for node, _ in calls for value in (*node.inputs, *node.outputs) if value}
    computed = [name for name, value in wanted.items() if value.producer() is not None]
    expected = {**feeds, **evaluate(compiled.normalized, feeds, computed, against)}
    inside = load_one(compiled.stitch(outputs=computed)).run(dict(feeds))
    binding = symbols_in([*compiled.partitioned.graph.inputs, *wanted.values()], expected)
    rows: list[RegionReport] = []
    first_bad: BadRegion | None = None
    tolerance = tolerance.among(compiled.normalized, computed)
    suspect = _Suspect(compiled.normalized, {**feeds, **inside}, against, tolerance)
    for node, region in calls:
        alone = load_one(compiled.stitch_region(region, binding))
        outer = {inner.name: value for inner, value in zip(region.function.inputs, node.inputs, strict=True) if value}
        results = alone.run({view.name: expected[outer[view.name].name or ""] for view in region.inputs})
        own = []
        for view, value in zip(region.outputs, node.outputs, strict=True):
            name = value.name or ""
            isolated = tolerance.judge(results[view.name], expected[name], name)
            accumulated = tolerance.judge(inside[name], expected[name], name)
            own.append(RegionReport(region.name, region.backend, name, isolated, accumulated))
        rows += own
        first_bad = first_bad or suspect.fault(region, own)
    return rows, first_bad


@dataclass(frozen=True, slots=True)
class _Suspect:
    """What tells whether a region is at fault: the model it was made of, and what its values were in the program."""

    model: ir.Model
    inside: Mapping[str, np.ndarray]
    against: str
    tolerance: Tolerance

    def fault(self, region: Region, rows: Sequence[RegionReport]) -> BadRegion | None:
        """Return what is wrong with a region, by itself or else with the inputs that it had; None if nothing is."""
        alone = {row.output: row.isolated for row in rows}
        if all(row.isolated.ok for row in rows):
            # right by itself and wrong in the program: by its own doing, or because its inputs were wrong already
            found = {} if all(row.accumulated.ok for row in rows) else self._with_own_inputs(region, list(alone))
            return self._worst(region, found, alone=False)
        return self._worst(region, alone, alone=True)

    def _worst(self, region: Region, found: Mapping[str, Difference], alone: bool) -> BadRegion | None:
        bad = [(row.max_abs, name) for name, row in found.items() if not row.ok]
        if not bad:
            return None
        name = max(bad)[1]
        return BadRegion(region.name, region.backend, region.origin, name, found[name], alone)

    def _with_own_inputs(self, region: Region, names: Sequence[str]) -> dict[str, Difference]:
        whole, numbers = whole_of(ir.to_proto(self.model), self.inside, region.origin)
        part = whole.part(numbers, names)
        if part is None or len(numbers) != len(region.origin):  # it was rewritten: there is nothing to compare with
            return {}
        expected = evaluate(ir.from_proto(part.model), part.inputs, list(part.expected), self.against)
        return {name: self.tolerance.judge(self.inside[name], array, name) for name, array in expected.items()}
