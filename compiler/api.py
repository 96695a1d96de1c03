"""The front door: `plan` and `compile`, over the installed plugins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from graft.compiler.backend_passes import prepare_for, unwanted_passes
from graft.compiler.compiled_model import CompiledModel
from graft.compiler.driver import Compiler, prepare
from graft.compiler.faults import without_faulty
from graft.compiler.given_schedules import SCHEDULES, Schedules, check_used, schedules_of
from graft.compiler.last_resort import warn_of
from graft.compiler.precision import with_precision
from graft.compiler.request import Backends, Request, listed, plugins
from graft.compiler.specialize import Specialize, combinations, label_of, specialized
from graft.compiler.stitching.most_memory import MEMORIES, Memory
from graft.compiler.whole_model import tuned_model
from graft.core.affine.expressions import ANY
from graft.core.collection import collection_rare
from graft.core.data_stack import with_room_for_frames
from graft.core.graph.dimensions import Dims, ranges_of
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.machine.machine import Machine
from graft.core.machine.rows import NATIVE
from graft.core.machine.target import tuned_database
from graft.core.operators.all import OPERATORS
from graft.core.shapes.met_symbols import met_symbols
from graft.core.shapes.unification import aliases_of
from graft.core.tuning.database import why_not_usable
from graft.core.tuning.options import TuneOptions, tune_options
from graft.errors import GraftError, ModelError, TuningError, UnsupportedError
from graft.partition.placement.estimators import Roofline
from graft.partition.placement.partitioner import Partitioned, partition
from graft.partition.plan import Plan
from graft.partition.policy import PlacementMode, Policy
from graft.plugins.backend import Backend
from graft.plugins.registry.manager import MANAGER, PluginManager
from graft.runtime.arguments import (
    DIMS,
    FLAG,
    PATH,
    SHAPES,
    SPECIALIZE,
    TEXT,
    TEXTS,
    WHOLE,
    Kind,
    instance,
    optional,
    takes,
)
from graft.runtime.extents import Symbol
from graft.runtime.isolation.options import ISOLATION, Isolations

if TYPE_CHECKING:
    import os

    import onnx_ir as ir

    from graft.compiler.plan_times import MeasuredPlans
    from graft.core.machine.target import CompileOptions
    from graft.partition.placement.estimators import Estimator
    from graft.runtime.procedure import ProgramDescription
    from graft.runtime.program import Program


__all__ = ["compile", "compile_model", "plan", "program_of"]


MODEL_OPTIONS = {
    "model": SOURCE,
    "shapes": optional(SHAPES),
    "dims": optional(DIMS),
    "policy": optional(instance(Policy, wanted="a graft.Policy")),
    "place": optional(TEXT),
    "threads": optional(WHOLE),
    "precision": TEXT,
    "manager": optional(MANAGER),
}
"""What `plan` and `compile` both take."""


@takes(**MODEL_OPTIONS)
def plan(
    model: Source,
    backends: Backends = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Dims | None = None,
    policy: Policy | None = None,
    place: PlacementMode | None = None,
    threads: int | None = None,
    precision: str = "float32",
    manager: PluginManager | None = None,
) -> Plan:
    """Return where every operator would run and why: a dry run, which compiles nothing.

    It asks every backend all that `compile` asks before it compiles; a backend that takes a region and then fails to
    compile or to load it is found by `compile` alone. The plan of what really runs is `Plan.of` the program.
    ``backends`` are in order of preference; ``dims`` and ``shapes`` as for
    `compile`. ``place`` (``auto``,
    ``greedy``, ``model``, ``measured``) overrides ``policy.placement``; named backends are taken greedily in their
    order, all installed ones by cost (``auto``), if neither says so. Only ``measured`` compiles and runs anything:
    plans that might be, with ``threads`` threads, for at most ``policy.measure_seconds``. With ``precision`` as for
    `compile` the plan says which operators it rounds the factors of.
    """
    request = Request(
        backends, shapes, threads, precision=precision, policy=policy, place=place, cache=False, tuned=False,
        manager=manager, dims=dims,
    )  # fmt: skip
    return partitioned(model, request).plan


@with_room_for_frames
def partitioned(model: Source, request: Request) -> Partitioned:
    """Partition as `plan` does and return the partitioned model too."""
    chosen, placement, options = request.chosen(), request.placement(), request.options()
    prepared = prepare(model, request.shapes, request.plugins, unwanted_passes(chosen), request.dims)
    prepare_for(prepared, chosen)

    def place_by(able: Sequence[Backend]) -> Partitioned:
        result = partition(
            prepared, able, policy=placement, estimator=estimator_for(able, options),
            times=times_for(placement, able, options, request.plugins), operators=OPERATORS,
        )  # fmt: skip
        return with_precision(result, able, options.target)

    return without_faulty(place_by, chosen, request.forgiven(chosen))[0]


def estimator_for(backends: Sequence[Backend], options: CompileOptions) -> Estimator:
    """Return the model of what regions cost here, with as many threads as the program will have."""
    return Roofline(backends, OPERATORS, options.threads, options.target)


def times_for(
    policy: Policy, backends: Sequence[Backend], options: CompileOptions, manager: PluginManager | None
) -> MeasuredPlans:
    """Return what knows the times of plans on this machine, and measures them within the policy's time."""
    from graft.compiler.plan_times import times_here

    load = partial(program_of, threads=options.threads, backends=backends, manager=manager)
    return times_here(backends, options, load, policy.measure_seconds)


MEMORY = Kind(" or ".join(map(repr, MEMORIES)), lambda value: isinstance(value, str) and value in MEMORIES)


@takes(
    **MODEL_OPTIONS, cpu=optional(TEXT), target=optional(TEXT), strict=FLAG, cache=FLAG, tuned=FLAG, without=TEXTS,
    keep_intermediates=optional(PATH), specialize=optional(SPECIALIZE), memory=MEMORY,
    isolation=optional(ISOLATION), keep_weights=FLAG, schedules=optional(SCHEDULES),
    tune=instance(bool, int, float, TuneOptions, wanted="True, a number of seconds, or graft.TuneOptions"),
    plan=optional(instance(Plan, wanted="a graft.Plan, as graft.plan and graft.Plan.from_json return")),
)  # fmt: skip
def compile(
    model: Source,
    backends: Backends = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Dims | None = None,
    specialize: Specialize | None = None,
    threads: int | None = None,
    cpu: str | None = None,
    target: str | None = None,
    precision: str = "float32",
    strict: bool = False,
    cache: bool = True,
    tune: bool | float | TuneOptions = False,
    tuned: bool = True,
    without: Collection[str] = (),
    plan: Plan | None = None,
    policy: Policy | None = None,
    place: PlacementMode | None = None,
    keep_intermediates: str | os.PathLike[str] | None = None,
    manager: PluginManager | None = None,
    memory: Memory = "binding",
    isolation: Isolations | None = None,
    keep_weights: bool = False,
    schedules: Schedules = None,
) -> Program:
    """Compile a model to a program that is ready to run and to save.

    ``backends`` are in order of preference: names or `Backend` objects; by default all installed ones that take part
    unnamed, placed by cost. Dimensions of inputs that the model gives no number are symbols: the program runs every
    shape. ``dims`` gives them ranges or numbers, as in ``{"batch": (1, 64), "seq": 128}``, and ``shapes`` gives all
    numbers of an input. ``specialize`` gives symbols a few numbers, or ranges, as in ``{"seq": [128, 384]}``: a version
    for every combination is compiled beside the general one, and a call takes the first that its shapes fit; ``plan``
    is of the general one. ``memory="maximum"`` plans the memory of intermediate tensors once, for the largest shapes of
    the ranges, which must all be bounded, instead of for each new shape. ``threads`` is the number of threads the
    program uses, all available ones by default;
    ``target`` (or ``cpu``) is the machine to compile for: ``native``, or a row of `graft.core.machine.rows` or of a
    plugin (``x86-64-v3``, ``armv8-a``, with features ``x86-64-v4+avx512vnni``) for an artifact that runs elsewhere.
    ``precision`` is that of float32 matrix products and convolutions in backends that generate code: ``bf16`` rounds
    their factors to bfloat16, sums in float32 and keeps images between convolutions in bfloat16. With ``strict`` a
    region that its backend fails to compile or to load is an error; otherwise it goes to the next backend. ``plan`` is
    a saved decision to follow, on its own backends unless others are given; ``place`` is a mode of placement, as for
    `plan`. With ``cache``, kernels that were compiled before are found in the user's cache directory.

    ``isolation`` names plugins whose code runs in processes of their own, as in ``{"npu": "process"}``, or with
    `Isolation` objects that say more: what crashes or hangs there is a RunError here, or goes on with the built-in
    compiler's code.

    ``keep_weights`` keeps the model's weights in the artifact as the model has them, beside those that kernels want in
    an order of their own, so that ``load(native="recompile")`` can compile the model anew; the file is larger for it.

    ``tune`` measures candidates for the schedules of kernels first, for so many seconds (True: 60), and remembers the
    best; later compilations use them unless ``tuned`` is False. ``schedules`` are those that the user gives: a file as
    ``graft inspect --schedules`` prints it, or texts by names of kernels (ScheduleError: a step cannot be taken).

    ``without`` names optimisations (`graft.core.machine.target.OPTIMISATIONS`) and passes
    (`graft.core.passes.normalize.PASSES`, or of a plugin) to switch off: the answer stays the same within rounding.
    Raises GraftError for a name that is neither.
    """
    request = Request(
        None if backends is None else listed(backends), shapes, threads, machine_wanted(cpu, target), precision,
        strict, cache, tune, tuned, without, plan, policy, place, keep_intermediates, manager, dims, specialize,
        memory, isolation, keep_weights, schedules_of(schedules),
    )  # fmt: skip
    compiled = compile_model(model, request)
    load = partial(
        program_of, threads=request.thread_count, backends=request.chosen(), manager=request.plugins,
        isolation=request.isolated(request.chosen()),
    )  # fmt: skip
    return compiled.load(load)


def machine_wanted(cpu: str | None, target: str | None) -> str:
    """Return the name of the machine to compile for, which either argument may give.

    Raise GraftError where they name two.
    """
    if cpu is not None and target is not None and cpu != target:
        raise GraftError(f"cpu '{cpu}' and target '{target}' name two machines; give one of them", target=target)
    return target or cpu or NATIVE


def require_code(backends: Sequence[Backend], machine: Machine) -> None:
    """Raise UnsupportedError if none of the backends that generate code does so for a machine."""
    answers = {backend.name: backend.generates_code(machine) for backend in backends}
    refused = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    if refused and True not in answers.values():
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise UnsupportedError(
            f"no backend generates code for target '{machine.name}'; {reasons}", target=machine.name, backends=refused
        )


def program_of(
    description: ProgramDescription,
    threads: int | None,
    backends: Backends = None,
    manager: PluginManager | None = None,
    isolation: Isolations | None = None,
) -> Program:
    """Return a program in this process; backend objects and the manager's plugins load the modules they made.

    ``isolation`` is by the names of plugins; None stands for what the description says.
    """
    from graft.runtime.isolation.program import loaded

    manager = manager or plugins()
    given = [manager.admit(one) for one in listed(backends or ()) if isinstance(one, Backend)]
    loaders = manager.loaders_for(description.modules, given)
    return loaded(description, threads, loaders, isolation, {one.name: one.secret_options for one in given})


@with_room_for_frames
@collection_rare()
def compile_model(model: Source, request: Request) -> CompiledModel:
    """Compile as `compile` does and return everything on the way: description, plan, models, times."""
    started = perf_counter()
    loaded = load(model, shapes=request.shapes, dims=request.dims)
    wanted = combinations(model, loaded, request.specialize or {}) if request.specialize else []
    seconds = perf_counter() - started
    general = _compile_one(loaded, replace(request, shapes=None, dims=None))
    general = replace(general, seconds={**general.seconds, "load": general.seconds["load"] + seconds})
    if not request.names_backends and (fallbacks := request.plugins.fallbacks()):
        warn_of(fallbacks[-1], general, estimator_for(request.chosen(), request.options()))
    equal = {} if "equal-dimensions" in request.without else met_symbols(general.normalized)
    alike = {name: one for name, one in aliases_of(loaded.metadata_props).items() if one.isidentifier()}
    variants: dict[str, CompiledModel] = {}
    for dims in (*wanted, *([equal] if equal else [])):
        spent = sum(one.tuning.spent for one in (general, *variants.values()) if one.tuning is not None)
        try:
            variant = _compile_one(model, request.variant({**alike, **dims}, spent))
        except ModelError:
            if dims is not equal:  # what is only likely to be equal may be what it cannot
                raise
            continue
        if dims is not equal or _is_version(general.normalized, variant.normalized, equal):
            variants[label_of(dims)] = variant
    whole = specialized(general, variants)
    check_used(request.schedules, whole.description, request.strict)
    return whole


def _is_version(general: ir.Model, variant: ir.Model, equal: Mapping[str, str]) -> bool:
    """Whether a version for dimensions that are only likely to be equal says what the general one knows.

    It may not where they cannot be: a body or a window says that one of them is 1 or large. Then outputs lack extents
    that the general one has by number, or a dimension may be what the other may not.
    """
    pairs = zip(general.graph.outputs, variant.graph.outputs, strict=True)
    shapes = ((one.shape or (), other.shape or ()) for one, other in pairs)
    if any(isinstance(old, int) and old != new for one in shapes for old, new in zip(*one, strict=False)):
        return False
    known, own = ranges_of(general), ranges_of(variant)
    kept = ((known.get(Symbol(name), ANY), own.get(Symbol(other), ANY)) for name, other in equal.items())
    return all(
        new.low >= old.low and (old.high is None or (new.high is not None and new.high <= old.high))
        for old, new in kept
    )


def _compile_one(model: Source, request: Request) -> CompiledModel:
    """Compile a model whatever is to be specialized."""
    chosen, placement, options = request.chosen(), request.placement(), request.options()
    for machine in (options.target.machine, *options.target.devices):
        require_code(chosen, machine)
    forgiven, manager = request.forgiven(chosen), request.plugins
    measuring = tune_options(request.tune)
    if measuring is not None and not request.tuned:
        raise TuningError("tune measures parameters that tuned=False forbids to use; leave one of them out")
    if measuring is not None and options.tuned is None:
        raise TuningError(
            f"tuning needs a database to keep what it finds in: {why_not_usable(tuned_database())}; set XDG_CACHE_HOME "
            "to a folder of your own"
        )
    times, chosen = without_faulty(lambda able: times_for(placement, able, options, manager), chosen, forgiven)

    def compiled(tune: TuneOptions | None, tuned: Path | None) -> CompiledModel:
        compiler = Compiler(
            chosen,
            replace(options, tuned=tuned),
            policy=placement,
            plan=request.plan,
            estimator=estimator_for(chosen, options),
            times=times,
            forgiven=forgiven,
            manager=manager,
            keep_intermediates=None if request.keep_intermediates is None else Path(request.keep_intermediates),
            tune=tune,
            memory=request.memory,
            isolation=request.isolated(chosen),
            keep_weights=request.keep_weights,
        )
        return compiler.compile(model, request.shapes, request.dims)

    if measuring is None or measuring.device is not None or options.tuned is None:
        return compiled(measuring, options.tuned)
    result = tuned_model(compiled, measuring, options.tuned, request.threads)
    share = None if result.tuning is None else result.tuning.whole
    if share is not None and share < 1:
        times.scale(result.partitioned, share)
    return result
