"""`graft.bisect`: from a model with a bad result to the smallest part that has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graft.compiler.request import Backends, Request, listed
from graft.core.backend_spec import backend_text
from graft.core.graph.dimensions import Dims, values_and_ranges
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError, InputError, VerifyError
from graft.measure.bisect.report import BisectReport, write_files
from graft.measure.bisect.search import Search
from graft.measure.bisect.trial import WRONG, Trials, named_in
from graft.measure.differences import Tolerance
from graft.measure.expected_values import PEERS, evaluate
from graft.measure.parts import Part, Whole
from graft.measure.verification import BadRegion, verify
from graft.partition.backend_like import options_of
from graft.partition.policy import Policy
from graft.plugins.registry.manager import MANAGER, PluginManager
from graft.runtime.arguments import (
    DIMS,
    FEEDS,
    FLAG,
    NUMBER,
    PATH,
    SHAPES,
    TEXT,
    TEXTS,
    WHOLE,
    instance,
    optional,
    takes,
)
from graft.runtime.isolation.options import ISOLATION, Isolation, Isolations, isolations

if TYPE_CHECKING:
    import os

MISTAKES = frozenset(
    {"ArgumentError", "InputError", "MachineError", "ModelError", "OptionError", "PlanError", "UnsupportedError"}
)
"""What the user has to mend: there is nothing to bisect, unless a plugin is accused."""


@takes(
    model=SOURCE, output=optional(PATH), against=TEXT, inputs=optional(FEEDS), shapes=optional(SHAPES),
    dims=optional(DIMS), threads=optional(WHOLE), strict=FLAG, without=TEXTS, isolation=optional(ISOLATION),
    rtol=NUMBER, atol=NUMBER, seconds=NUMBER, manager=optional(MANAGER),
    policy=optional(instance(Policy, wanted="a graft.Policy")),
)  # fmt: skip
def bisect(
    model: Source,
    backends: Backends = None,
    *,
    output: str | os.PathLike[str] | None = None,
    against: str = "reference",
    inputs: Mapping[str, np.ndarray] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Dims | None = None,
    threads: int | None = None,
    strict: bool = False,
    without: Collection[str] = (),
    isolation: Isolations | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    seconds: float = 60.0,
    policy: Policy | None = None,
    manager: PluginManager | None = None,
) -> BisectReport:
    """Find the smallest part of a model that fails as the model does, and the passes at fault.

    A model fails if it differs from ``against`` as `graft.verify` judges it, or if compiling or running it raises what
    is not the caller's mistake; the parts are fed with the reference's values. The report says which region is the
    first bad one, which nodes are left, and without which optimisations and passes they are right. No trial begins
    after ``seconds``. A folder ``output`` gets the part, its inputs and a script of two lines, if anything is wrong.
    What ``policy`` says of nodes and operators holds for the parts that have them.

    A plugin that crashes or hangs must be isolated; it is not tried again then, nor does another backend step in.
    """
    started = monotonic()
    if against not in PEERS:
        raise GraftError(f"cannot bisect against '{against}'; choose one of {', '.join(PEERS)}", against=against)
    if not seconds > 0:
        raise GraftError(f"seconds is {seconds}; give a positive number", seconds=seconds)
    values, ranges = values_and_ranges(dims or {})
    original = load(model, shapes=shapes, dims=ranges)
    fenced = {name: replace(how, fallback=False, retries=0) for name, how in isolations(isolation or {}).items()}
    chosen = None if backends is None else listed(backends)
    request = Request(
        chosen, threads=threads, strict=strict or bool(fenced), manager=manager, without=without,
        isolation=fenced or None, policy=policy,
    )  # fmt: skip
    whole, every = _whole(original, _feeds(original, inputs, values), against)
    trials = Trials(request, Tolerance(rtol, atol), frozenset(named_in(whole.model)))
    failure = None if every is None else trials.failure(every)
    if every is None or failure is None:
        return BisectReport(None, len(original.graph), int(every is not None), monotonic() - started)
    if failure.kind in MISTAKES and not failure.plugin:
        trials.run(every)  # raises it
    search = Search(whole, trials, failure, started + seconds, count=1)
    part, report = _searched(search, every, against)
    report = replace(report, seconds=monotonic() - started)
    return report if output is None else write_files(part, report, Path(output), _options(search, part, against))


def _searched(search: Search, every: Part, against: str) -> tuple[Part, BisectReport]:
    """Return the smallest part that fails, and all that is found of it."""
    region = None if search.expired() else _bad_region(search, every, against)
    search.generalise()
    numbers = search.start(region)
    if search.trials.request.backends is None and region is not None:
        others = [one.name for one in search.trials.request.chosen() if one.name != region.backend]
        search.prefer([region.backend, *others], numbers)
    part, failure = search.smallest(numbers)
    cures = search.cures(part, search.trials.request.plugin_passes())
    operators = tuple(node.op_type for node in part.model.graph.node)
    where = _places(search, part)
    report = BisectReport(
        search.failure, len(search.whole.model.graph.node), search.count, 0.0, search.finished, region, part.nodes,
        operators, where, failure, tuple(cures),
    )  # fmt: skip
    return part, report


def _feeds(model: ir.Model, inputs: Mapping[str, np.ndarray] | None, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the inputs of the model, seeded random ones unless given; raise InputError for other names."""
    if inputs is None:
        return sample_inputs(model, dims=dims)
    names = [value.name or "" for value in model.graph.inputs if value.name not in model.graph.initializers]
    for name in inputs:
        if name not in names:
            raise InputError(f"no input '{name}'; the model takes {', '.join(map(repr, names))}", input=name)
    for name in names:
        if name not in inputs:
            raise InputError(f"input '{name}' is missing; the model takes {', '.join(map(repr, names))}", input=name)
    return {name: np.asarray(array) for name, array in inputs.items()}


def _whole(model: ir.Model, feeds: Mapping[str, np.ndarray], against: str) -> tuple[Whole, Part | None]:
    """Return the model with the values that the reference has in it, and all of it as a part; None if it is empty."""
    results = (value for node in model.graph for value in node.outputs)
    names = [value.name or "" for value in results if value.name and isinstance(value.type, ir.TensorType)]
    values = {**feeds, **evaluate(model, feeds, names, against)}
    whole = Whole(ir.to_proto(model), values, concrete=False)
    every = whole.part(range(len(whole.model.graph.node)))
    missing = [value.name for value in model.graph.outputs if value.producer() and value.name not in values]
    if missing:
        raise VerifyError(f"output '{missing[0]}' is no tensor and cannot be compared; make it a tensor, or remove it")
    return whole, every


def _bad_region(search: Search, every: Part, against: str) -> BadRegion | None:
    """Return the first bad region of the whole model; None where it does not come so far, or none is at fault."""
    if search.failure.kind != WRONG:
        return None
    request, limits = search.trials.request, search.trials.tolerance
    chosen = None if request.backends is None else listed(request.backends)
    try:
        report = verify(
            every.model, chosen, per_region=True, against=against, inputs=every.inputs, threads=request.threads,
            strict=request.strict, policy=request.policy, without=request.without, isolation=request.isolation,
            rtol=limits.rtol, atol=limits.atol, manager=request.manager,
        )  # fmt: skip
    except GraftError:  # a region that cannot be run by itself, say: the nodes are searched all the same
        return None
    return report.first_bad


def _places(search: Search, part: Part) -> tuple[str, ...]:
    """Return the backend of each node of a part, "" where it was rewritten or cannot be planned."""
    from graft.compiler.api import partitioned

    try:
        placements = partitioned(part.model, search.trials.asked(part)).plan.placements
    except GraftError:  # a plugin that fails in supports, say
        return ("",) * len(part.nodes)
    where = {row.node: row.backend for row in placements}
    return tuple(where.get(name, "") for name in part.nodes)


def _options(search: Search, part: Part, against: str) -> list[str]:
    """Return the options with which `graft verify` meets the failure; secrets are left out."""
    request, limits = search.trials.asked(part), search.trials.tolerance
    words = ["--against", against] if against != PEERS[0] else []
    if request.backends is not None:
        words += ["-b", ",".join(backend_text(one.name, options_of(one)) for one in request.chosen())]
    if (limits.rtol, limits.atol) != (1e-3, 1e-4):
        words += ["--rtol", f"{limits.rtol:g}", "--atol", f"{limits.atol:g}"]
    words += [] if request.policy is None else _placement(request.policy)
    words += [] if request.threads is None else ["--threads", str(request.threads)]
    words += ["--strict"] if request.strict else []
    for name in request.without:
        words += ["--switch-off", name]
    for name, how in isolations(request.isolation or {}).items():
        words += ["--isolate", _isolation(name, how)]
    for plugin in request.plugins.plugins():
        words += ["--plugin", str(Path(plugin.source.value).absolute())] if plugin.source.is_file else []
    return words


def _placement(policy: Policy) -> list[str]:
    words = [] if policy.placement is None else ["--place", policy.placement]
    words += [word for node, backend in policy.pin.items() for word in ("--pin", f"{node}={backend}")]
    for name in ("exclude_op", "exclude_node", "allow_inaccurate"):
        words += [word for one in getattr(policy, name) for word in (f"--{name.replace('_', '-')}", one)]
    for name in ("min_region_ops", "min_region_flops", "max_regions", "max_region_layers"):
        words += [f"--{name.replace('_', '-')}", str(number)] if (number := getattr(policy, name)) else []
    return words


def _isolation(name: str, how: Isolation) -> str:
    settings = [f"seconds={how.seconds:g}", f"load_seconds={how.load_seconds:g}", "retries=0", "fallback=no"]
    settings += [] if how.memory is None else [f"memory={how.memory}"]
    settings += [f"{what}=no" for what, on in (("compile", how.compile), ("run", how.run)) if not on]
    return f"{name}:{','.join(settings)}"
