"""The outcome of a compilation, and the programs that are stitched of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from graft.compiler.stitching.most_memory import Memory
from graft.compiler.stitching.stitch import Stitcher
from graft.compiler.unloaded import UnloadedProgram
from graft.core.graph.dimensions import ranges_of
from graft.core.tuning.options import TuneReport
from graft.errors import GraftError
from graft.partition.region import REGION_DOMAIN, Region
from graft.plugins.backend import CompiledRegion
from graft.runtime.objects import require_runtime
from graft.runtime.procedure import Device, Module, ProgramDescription

if TYPE_CHECKING:
    from graft.partition.plan import Plan
    from graft.runtime.program import Program


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """The outcome of a compilation: everything the way of the model went through, down to the program."""

    description: ProgramDescription
    plan: Plan
    partitioned: ir.Model
    normalized: ir.Model
    regions: Mapping[str, Region]
    modules: Mapping[str, Module | CompiledRegion]
    passed: frozenset[str]
    """The backends whose constants go along with every call."""
    seconds: Mapping[str, float]
    """Time spent, by stage (``load normalize partition stitch describe``) and by region (``region:<name>``), of which
    ``region:<name>/<stage>`` are parts, in a thread of their own where they come to more."""
    tuning: TuneReport | None = None
    """What tuning has found, where it was asked for and a backend has something to tune."""
    reuse: bool = True
    """Whether results that are not live at the same time may have the same memory."""
    memory: Memory = "binding"
    """When memory is planned where shapes vary."""
    devices: Mapping[str, Device] = field(default_factory=dict)
    """The memories that backends compute in, where it is not main memory."""
    without: Callable[[Sequence[tuple[Region, GraftError]]], CompiledModel] | None = None
    """Compiles again where some regions' modules cannot be loaded, or raises why they cannot."""

    device_faults: Mapping[str, str] = field(default_factory=dict)
    """Why backends' devices cannot be used here, by backend."""

    def load(self, load: Callable[[ProgramDescription], Program]) -> Program:
        """Return what ``load`` makes of the program, regions that cannot be loaded here going to the next backend.

        Where there is none, and only devices are missing, it is an `UnloadedProgram`, which can be saved.
        """
        require_runtime(self.description)
        try:
            return load(self.description)
        except GraftError as error:
            failures = self._unloadable(load)
            if self.without is None or not failures:
                raise
            try:
                other = self.without(failures)
            except GraftError:
                faults = {self.device_faults.get(region.backend, "") for region, _ in failures}
                if "" in faults:
                    raise
                return UnloadedProgram(self.description, error)
        return other.load(load)

    def loadable(self, load: Callable[[ProgramDescription], Program]) -> CompiledModel:
        """Return the model with the regions that cannot be loaded here compiled by other backends; itself if none."""
        failures = self._unloadable(load)
        return self if self.without is None or not failures else self.without(failures)

    def _unloadable(self, load: Callable[[ProgramDescription], Program]) -> list[tuple[Region, GraftError]]:
        """Return the regions that cannot be loaded, each tried by itself."""
        failures: list[tuple[Region, GraftError]] = []
        for region in self.regions.values():
            try:
                load(replace(self._stitcher().stitch_modules(region), targets=self.description.targets))
            except GraftError as error:
                failures.append((region, error))
        return failures

    @property
    def total_seconds(self) -> float:
        """The time of the whole compilation."""
        return sum(seconds for stage, seconds in self.seconds.items() if "/" not in stage)

    def region_calls(self) -> list[tuple[ir.Node, Region]]:
        """Return the nodes of the main graph that call a region, with the region."""
        return [(node, self.regions[node.op_type]) for node in self.partitioned.graph if node.domain == REGION_DOMAIN]

    def stitch(self, outputs: Sequence[str]) -> ProgramDescription:
        """Return the program with further values of the main graph as outputs, after the model's own."""
        values = {value.name: value for node in self.partitioned.graph for value in node.outputs}
        more = [values[name] for name in outputs if values[name] not in self.partitioned.graph.outputs]
        return self._stitcher().stitch(self.partitioned.graph, more)

    def stitch_region(self, region: Region, binding: Mapping[str, int] | None = None) -> ProgramDescription:
        """Return a program that is one region alone; its inputs and outputs have the region's names.

        ``binding`` are numbers for symbols.
        """
        return self._stitcher().stitch_region(region, binding)

    def _stitcher(self) -> Stitcher:
        ranges = ranges_of(self.partitioned)
        return Stitcher(self.regions, self.modules, self.passed, self.reuse, ranges, self.memory, self.devices)
