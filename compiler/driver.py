"""The way of a model: load, normalise, partition, compile every region, stitch.

A region that its backend cannot compile, or whose module cannot be loaded here, goes to the next backend: the failure
becomes a refusal and the model is partitioned again, so the final plan is the one that runs. Regions that did not
change are not compiled again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from graft.compiler.artifact_weights import kept_weights, model_without_weights
from graft.compiler.backend_passes import prepare_for, unwanted_passes
from graft.compiler.cache_facts import cache_facts
from graft.compiler.compile_options import compile_options
from graft.compiler.compiled_model import CompiledModel
from graft.compiler.constant_subgraphs import Evaluate
from graft.compiler.exchanged_values import packed_types
from graft.compiler.faults import refused_nodes, without_faulty
from graft.compiler.given_schedules import is_refused
from graft.compiler.precision import with_precision
from graft.compiler.preparation import simplified
from graft.compiler.quantized_values import quantized_values
from graft.compiler.stitching.most_memory import Memory
from graft.compiler.stitching.stitch import Stitcher
from graft.compiler.tuned_dims import check_dims
from graft.core.graph.dimensions import Dims, ranges_of
from graft.core.graph.save import save_with_data
from graft.core.importer.load import imported
from graft.core.importer.source import Source
from graft.core.lazy import Lazy, LazyMapping
from graft.core.machine.rows import COMPILED_FOR, GENERIC
from graft.core.machine.target import CompileOptions
from graft.core.operators.all import OPERATORS
from graft.core.reject import Reject
from graft.core.tuning.options import TuneOptions, TuneReport, remaining
from graft.core.tuning.tunings import Tunings
from graft.errors import DatabaseError, GraftError, InternalError
from graft.partition.placement.partitioner import Partitioned, partition
from graft.partition.policy import Policy
from graft.partition.region import Region, regions
from graft.plugins.backend import Backend, CompiledRegion
from graft.runtime.caches import Cache, caches_to_json
from graft.runtime.isolation.options import Isolation
from graft.runtime.packed_values import METADATA
from graft.runtime.procedure import Device, Module, ProgramDescription
from graft.runtime.system.files import make_folder, write
from graft.runtime.system.version import version
from graft.runtime.tensor_info import QUANTIZATION, Quantization

if TYPE_CHECKING:
    from graft.partition.placement.cost_search import PlanTimes
    from graft.partition.placement.estimators import Estimator
    from graft.partition.plan import Plan
    from graft.plugins.registry.manager import PluginManager


log = logging.getLogger("graft.compiler.driver")
PARTING_SECONDS = 60.0
"""How long a backend's compiler may find operators that do not fit, a few at a time, before such regions go whole."""


def prepare(
    source: Source,
    shapes: Mapping[str, Sequence[int]] | None = None,
    manager: PluginManager | None = None,
    without: Collection[str] = (),
    dims: Dims | None = None,
) -> ir.Model:
    """Return the model loaded and simplified; ``source`` is not changed.

    The passes of the manager's plugins run too: ``import`` ones with the standard ones, the others after them.
    Passes named in ``without`` are left out, those of plugins too.
    """
    return simplified(imported(source, shapes, dims), source, shapes, manager, _evaluation(manager), without, dims)


def _evaluation(manager: PluginManager | None) -> Evaluate | None:
    return None if manager is None else partial(_run_once, manager)


def _run_once(manager: PluginManager, model: ir.Model) -> Mapping[str, np.ndarray]:
    """Return what a model without inputs computes, on the machine that compiles, by what takes what others leave."""
    from graft.runtime.isolation.program import loaded

    backends = [one for one in manager.backends() if one.fallback and one.available() is None]
    compiled = Compiler(backends, compile_options(1, True, without=("constant-subgraphs",))).compile(model)
    return compiled.load(lambda one: loaded(one, 1, manager.loaders_for(one.modules, ()), None)).run({})


class Compiler:
    """Compiles models with a fixed choice of backends and options.

    ``backends`` are in order of preference, each in a fence (`graft.compiler.api.choose`): what vendor code raises
    arrives as a GraftError. ``plan`` (a saved decision) and ``policy`` steer the partitioner; ``estimator`` prices
    regions and ``times`` knows plans where the policy places by cost. A region of a plan that its backend fails to
    compile is an error, for the plan says that it is to have it. ``tune`` has the backends measure before they compile.
    Backends named in ``forgiven`` are left out where they are at fault; the faults of others are errors.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        options: CompileOptions,
        *,
        policy: Policy | None = None,
        plan: Plan | None = None,
        estimator: Estimator | None = None,
        times: PlanTimes | None = None,
        manager: PluginManager | None = None,
        keep_intermediates: Path | None = None,
        tune: TuneOptions | None = None,
        forgiven: Collection[str] = (),
        memory: Memory = "binding",
        isolation: Mapping[str, Isolation] | None = None,
        keep_weights: bool = False,
    ) -> None:
        self._process = os.getpid()
        self._keep_weights = keep_weights
        self._memory: Memory = memory
        self._isolation = isolation or {}
        self._backends = {backend.name: backend for backend in backends}
        self._options = options
        self._policy = policy
        self._plan = plan
        self._estimator = estimator
        self._times = times
        self._manager = manager
        self._keep = keep_intermediates
        self._tune = tune
        self._forgiven = forgiven
        self._report: TuneReport | None = None
        self._parting: dict[str, float] = {}
        self._finished: dict[tuple[str, str, tuple[str, ...]], Module | CompiledRegion] = {}
        self.seconds: dict[str, float] = {}

    def compile(
        self, source: Source, shapes: Mapping[str, Sequence[int]] | None = None, dims: Dims | None = None
    ) -> CompiledModel:
        """Compile a model; raise GraftError if it is not valid, or no backend takes a part of it."""
        if self._options.tuned is not None:
            Tunings(self._options.tuned).check()
        with self._timed("load"):
            loaded = imported(source, shapes, dims)
        with self._timed("normalize"):
            backends, without = list(self._backends.values()), self._options.target.without
            unwanted = {*without, *unwanted_passes(backends)}
            model = simplified(loaded, source, shapes, self._manager, _evaluation(self._manager), unwanted, dims)
            prepare_for(model, backends, without)
        self._write("01_normalized.onnx", model)
        return self._compiled(model, {})

    def _compiled(self, model: ir.Model, refusals: dict[tuple[str, str], Reject]) -> CompiledModel:
        """Compile a prepared model; what fails joins ``refusals``."""
        while True:
            partitioned = self._partition(model, refusals)
            if self._tune is not None and not refusals:
                with self._timed("tune"):
                    self._report = self._tuned(partitioned, self._tune)
            failed = self._compile_regions(partitioned, refusals)
            if not failed:
                break
        self._write("02_partitioned.onnx", partitioned.model)
        found = {region.name: region for region in regions(partitioned.model)}
        compiled = {name: self._finished[(name, one.backend, one.origin)] for name, one in found.items()}
        passed = frozenset(name for name, backend in self._backends.items() if backend.constants == "passed")
        with self._timed("stitch"):
            reuse = "in-place" not in self._options.target.without
            devices = {
                name: Device(one.device, getattr(one, "plugin", name), one.install)
                for name, one in self._backends.items()
                if one.device != "cpu"
            }
            stitcher = Stitcher(found, compiled, passed, reuse, ranges_of(partitioned.model), self._memory, devices)
            description = stitcher.stitch(partitioned.model.graph)
        with self._timed("describe"):
            caches = cache_facts(partitioned.model, model, compiled, found, description)
            description = self._with_facts(description, partitioned, stitcher.weights, caches, quantized_values(model))
        return CompiledModel(
            description, partitioned.plan, partitioned.model, model, found, compiled, passed, dict(self.seconds),
            self._report, reuse, self._memory, devices, partial(self._without, model, refusals),
            {name: self._backends[name].device_fault() for name in {one.backend for one in found.values()}},
        )  # fmt: skip

    def _without(
        self, model: ir.Model, refusals: dict[tuple[str, str], Reject], failures: Sequence[tuple[Region, GraftError]]
    ) -> CompiledModel:
        """Compile again what could not be loaded, by other backends."""
        for region, error in failures:
            self._refuse(region, error, refusals)
        return self._compiled(model, refusals)

    def _partition(self, model: ir.Model, refusals: Mapping[tuple[str, str], Reject]) -> Partitioned:
        kept = {(backend, frozenset(origin)): name for name, backend, origin in self._finished}

        def place(backends: Sequence[Backend]) -> Partitioned:
            result = partition(
                model, backends, policy=self._policy, refusals=refusals, plan=self._plan, estimator=self._estimator,
                times=self._times, operators=OPERATORS, kept=kept,
            )  # fmt: skip
            return with_precision(result, backends, self._options.target)

        with self._timed("partition"):
            result, able = without_faulty(place, list(self._backends.values()), self._forgiven)
        self._backends = {backend.name: backend for backend in able}
        if result.plan.unplaced:
            result.plan.require_complete(self._completing(place))
        return result

    def _completing(self, place: Callable[[Sequence[Backend]], Partitioned]) -> str:
        """Return the first fallback that takes what is left; "" where none does, or a plan says who takes what."""
        if self._manager is None or self._plan is not None:
            return ""
        for one in self._manager.backends([name for name in self._manager.fallbacks() if name not in self._backends]):
            if one.available() is None and not place([*self._backends.values(), one]).plan.unplaced:
                return one.name
        return ""

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Add the time of the body to that of a stage."""
        started = perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + perf_counter() - started

    def _tuned(self, partitioned: Partitioned, tuning: TuneOptions) -> TuneReport | None:
        """Let each backend tune its regions, within one budget."""
        report: TuneReport | None = None
        left: TuneOptions | None = tuning
        check_dims(partitioned.model, tuning)
        found = list(regions(partitioned.model))
        for name, backend in self._backends.items():
            own = [region for region in found if region.backend == name]
            left = tuning if report is None else remaining(tuning, report.spent, report.trials)
            part = self._tuned_by(backend, own, left) if own and left is not None else None
            if part is not None:
                report = part if report is None else report + part
        return report

    def _tuned_by(self, backend: Backend, own: Sequence[Region], tuning: TuneOptions) -> TuneReport | None:
        try:
            return backend.tune(own, self._options, tuning)
        except GraftError as error:
            if backend.name not in self._forgiven or "plugin" not in error.facts:
                raise
            log.warning("%s; its regions are compiled untuned", error.message)
            return None

    def _compile_regions(self, partitioned: Partitioned, refusals: dict[tuple[str, str], Reject]) -> bool:
        """Compile every region not compiled yet; turn failures into refusals and say whether there were any."""
        failed = False
        for region in regions(partitioned.model):
            key = (region.name, region.backend, region.origin)
            if key in self._finished:
                continue
            started = perf_counter()
            try:
                compiled = self._backends[region.backend].compile(region, self._options)
            except GraftError as error:
                self._refuse(region, error, refusals, perf_counter() - started)
                failed = True
                continue
            seconds = perf_counter() - started
            self.seconds[f"region:{region.name}"] = seconds
            if isinstance(compiled, CompiledRegion):
                self.seconds |= {f"region:{region.name}/{stage}": part for stage, part in compiled.seconds.items()}
            self._finished[key] = compiled
            self._keep_region(region, compiled)
            if self._manager is not None:
                self._manager.region_compiled(region, compiled, seconds)
        return failed

    def _refuse(
        self, region: Region, error: GraftError, refusals: dict[tuple[str, str], Reject], seconds: float = 0.0
    ) -> None:
        """Make a failure the reason why the backend does not get nodes of a region; raise it where that is no way.

        These are the nodes that the error names, where it names some of the region (`Backend.compile`), else all; and
        all, too, once a backend's compiler has parted regions for `PARTING_SECONDS`: it may take minutes each time.
        """
        if self._options.strict or self._plan is not None or isinstance(error, DatabaseError | InternalError):
            raise error
        if os.getpid() != self._process:  # a child that the backend has forked and let back: nothing is compiled twice
            raise error
        if is_refused(error, self._options.schedules):
            raise error
        log.warning("%s; the region goes to the next backend", error)
        log.debug("region '%s' failed", region.name, exc_info=error)
        names, reason = refused_nodes(error, region.origin)
        known = len(refusals)
        refusals.update({(name, region.backend): reason for name in names})
        if len(refusals) == known:
            raise error
        if len(names) < len(region.origin):
            self._parting[region.backend] = spent = self._parting.get(region.backend, 0.0) + seconds
            if spent > PARTING_SECONDS:
                text = (
                    f"its compiler took {spent:.0f} s to refuse parts of regions, the last for '{names[0]}': {reason}"
                )
                rest = Reject("compile-failed", text)
                refusals.update({(name, region.backend): rest for name in region.origin if name not in names})

    def _with_facts(
        self,
        description: ProgramDescription,
        partitioned: Partitioned,
        weights: Mapping[str, str],
        caches: Sequence[Cache],
        quantized: Mapping[str, Quantization],
    ) -> ProgramDescription:
        """Add what people and tools ask an artifact: target, plan, and the partitioned model without weights.

        Reasons of the plan take long to find in large models, so it is written when somebody asks for it.
        """
        target, plan = self._options.target, partitioned.plan
        if self._keep_weights:
            weights, constants = kept_weights(partitioned.model, weights, description.constants)
            description = replace(description, constants=constants)
        metadata: dict[str, Any] = {
            "graft": version(),
            "plan": Lazy(plan.to_json),
            "summary": Lazy(plan.summary),
            "threads": self._options.threads,
            "precision": target.precision,
            "weights": dict(weights),
        }
        if target.without:
            metadata["without"] = sorted(target.without)
        if caches:
            metadata["caches"] = caches_to_json(caches)
        if quantized:
            metadata[QUANTIZATION] = {name: [one.scale, one.zero_point] for name, one in quantized.items()}
        if self._isolation:
            metadata["isolation"] = {plugin: how.to_json() for plugin, how in self._isolation.items()}
        if packed := packed_types(partitioned.model):
            metadata[METADATA] = packed
        files = {"model.onnx": model_without_weights(partitioned.model)}
        needed = {"arch": target.arch, "features": sorted(target.features & COMPILED_FOR)}
        targets = () if target.arch == GENERIC.arch else (needed,)
        return replace(description, targets=targets, metadata=LazyMapping(metadata), files=files)

    def _write(self, name: str, model: ir.Model) -> None:
        """Save an intermediate model if the user asked for them."""
        if self._keep is not None:
            make_folder(self._keep, "intermediate results")
            save_with_data(model, self._keep / name, "intermediate model")

    def _keep_region(self, region: Region, compiled: Module | CompiledRegion) -> None:
        """Save what a backend made of a region if the user asked for it."""
        if self._keep is None:
            return
        make_folder(self._keep, "intermediate results")
        for module in compiled.modules if isinstance(compiled, CompiledRegion) else (compiled,):
            suffix = module.kind.replace(":", "_")
            write(self._keep / f"03_{region.name}.{module.name}.{suffix}", module.data, "module")
