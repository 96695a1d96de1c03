"""`graft compile`: a model becomes an artifact."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    choices_argument,
    common_options,
    compile_options,
    dim_option,
    numbers_argument,
    policy_options,
    precision_option,
    switch_option,
)
from graft.cli.isolation import isolation_option
from graft.cli.output import keep_clear, print_json, print_table
from graft.cli.plan import gate_code, gate_failures, gate_options
from graft.cli.sources import give_back
from graft.report.quantities import size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graft.compiler.compiled_model import CompiledModel
    from graft.compiler.specialize import Specialize
    from graft.compiler.stitching.most_memory import Memory
    from graft.core.tuning.options import TuneReport
    from graft.partition.plan import Plan
    from graft.plugins.backend import ModuleReport


@click.command("compile")
@click.argument("model", type=MODEL)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The artifact; MODEL.graft by default."
)
@backend_options
@dim_option
@click.option(
    "--specialize",
    "choices",
    metavar="NAME=128,384",
    type=choices_argument,
    multiple=True,
    help="Numbers or ranges of a symbolic dimension to compile versions for, beside the general one.",
)
@compile_options
@switch_option
@precision_option
@isolation_option
@policy_options
@click.option("--plan", "plan_file", type=MODEL, help="Follow a plan that `graft plan -o` saved.")
@gate_options
@click.option(
    "--target",
    "--cpu",
    "target",
    default="native",
    show_default=True,
    help="The machine to compile for, such as x86-64-v3, armv8-a or x86-64-v4+avx512vnni.",
)
@click.option(
    "--memory",
    type=click.Choice(["binding", "maximum"]),
    default="binding",
    show_default=True,
    help="Plan memory for each binding of the symbols, or once for the largest shapes of their ranges.",
)
@click.option(
    "--keep-intermediates", "keep", type=click.Path(file_okay=False, path_type=Path), help="Save every stage here."
)
@click.option(
    "--keep-weights", is_flag=True, help="Keep the weights for `graft run --native recompile`; a larger file."
)
@click.option("--tune", is_flag=True, help="Measure schedules on this machine first, and remember the best.")
@click.option(
    "--tune-seconds", type=click.FloatRange(min=0, min_open=True), help="Time for --tune, 60 if left out; implies it."
)
@click.option(
    "--tune-dim",
    "tune_dims",
    metavar="NAME=16,128",
    type=numbers_argument,
    multiple=True,
    help="Measure kernels of shapes that vary at these values of a dimension.",
)
@click.option("--tune-trials", type=click.IntRange(min=1), help="How many candidates --tune compiles at most.")
@click.option("--tune-goal", type=float, metavar="1.2", help="The gain that suffices --tune.")
@click.option("--no-tuned", is_flag=True, help="Use nothing of what tuning has found before.")
@click.option(
    "--schedule",
    "schedule_file",
    type=MODEL,
    help="Make kernels by the steps of this file (`graft inspect --schedules`).",
)
@click.option("--no-cache", is_flag=True, help="Neither use nor keep kernels compiled before.")
@click.option(
    "--source",
    "sources",
    metavar="[MODULE=]FILE",
    multiple=True,
    help="Of an artifact: compile this edited source (`graft inspect --source`) of one of its modules anew.",
)
@click.option("--time", "show_time", is_flag=True, help="Print where the time of compiling went.")
@common_options
@click.pass_obj
def command(
    state: State,
    /,
    model: Path,
    output: Path | None,
    choices: tuple[tuple[str, list[int | tuple[int, int | None]]], ...],
    plan_file: Path | None,
    coverage: tuple[str, float] | None,
    required: tuple[str, ...],
    target: str,
    keep: Path | None,
    tune: bool,
    tune_seconds: float | None,
    tune_dims: tuple[tuple[str, list[int]], ...],
    tune_trials: int | None,
    tune_goal: float | None,
    no_tuned: bool,
    schedule_file: Path | None,
    no_cache: bool,
    sources: tuple[str, ...],
    show_time: bool,
    memory: Memory,
    keep_weights: bool,
) -> int:
    """Compile MODEL to one artifact."""
    from graft.cli.progress import toolkit_messages, tuning_bar
    from graft.compiler.api import compile_model
    from graft.compiler.given_schedules import schedules_of
    from graft.compiler.request import Request
    from graft.partition.plan import Plan

    if sources:
        return give_back(state, model, sources, output)
    limits: dict[str, Any] = {"dims": dict(tune_dims), "trials": tune_trials, "goal": tune_goal}
    _check_tuning(bool(tune or tune_seconds), no_tuned, any(limits.values()))
    with tuning_bar(tune_seconds) if tune or tune_seconds else toolkit_messages() as tuning_options:
        request = Request(
            state.backends,
            shapes=dict(state.shapes),
            dims=dict(state.dims),
            specialize=_joined(choices),
            threads=state.threads,
            target=target,
            precision=state.precision,
            strict=state.strict,
            memory=memory,
            cache=not no_cache,
            tune=tuning_options if isinstance(tuning_options, bool) else replace(tuning_options, **limits),
            tuned=not no_tuned,
            without=state.switched_off,
            policy=state.policy(),
            plan=None if plan_file is None else Plan.load(plan_file),
            keep_intermediates=keep,
            manager=state.manager(),
            isolation=dict(state.isolation) or None,
            keep_weights=keep_weights,
            schedules=schedules_of(schedule_file),
        )
        compiled = compile_model(str(model), request)
    if failures := gate_failures(compiled.plan, coverage, required):
        if state.json:
            print_json({"summary": compiled.plan.summary(), "failures": failures})
        return gate_code(failures)
    _save(state, compiled, output or model.with_suffix(".graft"), show_time)
    return ExitCode.OK


def _check_tuning(tunes: bool, no_tuned: bool, is_limited: bool) -> None:
    """Refuse options of tuning that contradict each other."""
    if no_tuned and tunes:
        raise click.UsageError("--tune finds what --no-tuned forbids to use; leave one of them out")
    if is_limited and not tunes:
        raise click.UsageError("--tune-dim, --tune-trials and --tune-goal say how --tune measures; give that, too")


def _joined(choices: Sequence[tuple[str, list[int | tuple[int, int | None]]]]) -> Specialize:
    """The choices of each name, which may be given several times."""
    return {name: [one for other, given in choices if other == name for one in given] for name, _ in choices}


def _save(state: State, compiled: CompiledModel, path: Path, show_time: bool) -> None:
    """Save the artifact, and print what was compiled and what plugins report on their modules."""
    from graft.plugins.registry.module_reports import module_reports
    from graft.runtime.artifact import save

    started = perf_counter()
    keep_clear(path)
    written = save(compiled.description, path)
    seconds = {**compiled.seconds, "save": perf_counter() - started}
    reports = module_reports(compiled.description.modules, state.manager())
    if state.json:
        tuning = {} if compiled.tuning is None else {"tuning": _facts(compiled.tuning)}
        facts = {"artifact": str(path), "bytes": written, "summary": compiled.plan.summary()}
        details = {"modules": {name: one.facts for name, one in reports.items()}} if reports else {}
        details |= {"operators": _operators(compiled.plan, reports)} if reports else {}
        print_json({**facts, **tuning, **details, "seconds": seconds})
    else:
        _print(compiled, f"{path}: {size(written)}", seconds, show_time)
        for one in reports.values():
            click.echo(f"\n{one.title}\n{one.text}")
        if reports:
            _print_operators(_operators(compiled.plan, reports))


def _print(compiled: CompiledModel, artifact: str, seconds: Mapping[str, float], show_time: bool) -> None:
    """Print what was compiled, and where the time went if it is asked for."""
    total = sum(part for stage, part in seconds.items() if "/" not in stage)
    click.echo(compiled.plan.summary())
    if compiled.tuning is not None:
        click.echo(compiled.tuning.summary())
    click.echo(f"{artifact}, compiled in {total:.1f} s")
    if show_time:
        _print_times(seconds, total)


def _operators(plan: Plan, reports: Mapping[str, ModuleReport]) -> dict[str, Any]:
    """Return how many operators went where, and why those that no reported module holds did not go there."""
    from graft.report.reasons import reason_groups

    regions = {row.region: row.backend for row in plan.placements if row.region}
    devices = {backend for region, backend in regions.items() if any(name.startswith(region) for name in reports)}
    return {
        "placed": dict(Counter(row.backend for row in plan.placements)),
        "refused": [
            {"backend": one.backend, "code": one.code, "reason": one.text, "operators": dict(one.operators),
             "nodes": list(one.nodes)}
            for one in reason_groups(plan)
            if one.backend in devices
        ],
    }  # fmt: skip


def _print_operators(facts: Mapping[str, Any]) -> None:
    """Print the same for people."""
    from graft.report.reasons import shortened

    placed = ", ".join(f"{name} {count}" for name, count in facts["placed"].items())
    click.echo(f"\noperators: {placed}")
    rows = [
        (
            one["backend"],
            one["code"],
            shortened([f"{name} {n}" for name, n in one["operators"].items()], 4),
            one["reason"],
        )
        for one in facts["refused"]
    ]
    if rows:
        print_table(("NOT ON", "CODE", "OPERATORS", "REASON"), rows)


def _facts(report: TuneReport) -> dict[str, Any]:
    """What tuning has found, for JSON; times in seconds."""
    from graft.core.schedule.parameters import to_json

    rows = [
        {
            "workload": one.label,
            "count": one.count,
            "parameters": json.loads(to_json(one.parameters)),
            "seconds": one.seconds,
            "untuned": one.untuned,
        }
        for one in report.tuned
    ]
    facts = {"workloads": report.total, "finished": report.finished, "seconds": report.spent}
    return {**facts, "summary": report.summary(), "tuned": rows}


def _print_times(seconds: Mapping[str, float], total: float) -> None:
    """Print a table of the stages, those of a region below it; ``llvm`` runs beside the others."""
    rows = []
    for stage, part in seconds.items():
        region, _, inner = stage.partition("/")
        rows.append((f"  {inner}" if inner else region, 1e3 * part, 100 * part / total))
    print_table(("STAGE", "MILLISECONDS", "SHARE %"), rows)
