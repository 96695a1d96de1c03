"""`graft compile`: a model becomes an artifact."""

from __future__ import annotations

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
    common_options,
    compile_options,
    names_or_none,
    policy_of,
    policy_options,
)
from graft.cli.output import print_json, print_table, size
from graft.cli.plan import check_coverage, coverage_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graft.partition.policy import Policy


@click.command("compile")
@click.argument("model", type=MODEL)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The artifact; MODEL.graft by default."
)
@backend_options
@compile_options
@policy_options
@click.option("--plan", "plan_file", type=MODEL, help="Follow a plan that `graft plan -o` saved.")
@coverage_option
@click.option("--cpu", default="native", show_default=True, help="The processor to compile for, such as x86-64-v3.")
@click.option(
    "--keep-intermediates", "keep", type=click.Path(file_okay=False, path_type=Path), help="Save every stage here."
)
@click.option("--no-cache", is_flag=True, help="Neither use nor keep kernels compiled before.")
@click.option("--time", "show_time", is_flag=True, help="Print where the time of compiling went.")
@common_options
@click.pass_obj
def command(
    state: State,
    /,
    model: Path,
    output: Path | None,
    backends: tuple[str, ...] | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    threads: int | None,
    strict: bool,
    plan_file: Path | None,
    coverage: tuple[str, float] | None,
    cpu: str,
    keep: Path | None,
    no_cache: bool,
    show_time: bool,
    **wishes: Any,
) -> int:
    """Compile MODEL to one artifact."""
    from graft.api import compile_model
    from graft.runtime.artifact import save

    policy = policy_of(wishes)
    compiled = compile_model(
        str(model),
        names_or_none(backends),
        shapes=dict(shapes),
        threads=threads,
        cpu=cpu,
        strict=strict,
        cache=not no_cache,
        policy=policy if plan_file is None else _following(policy, plan_file),
        keep_intermediates=keep,
        manager=state.manager(),
    )
    gate = check_coverage(compiled.plan, coverage)
    if gate:
        return gate
    path = output or model.with_suffix(".graft")
    started = perf_counter()
    save(compiled.description, path)
    seconds = {**compiled.seconds, "save": perf_counter() - started}
    total = sum(part for stage, part in seconds.items() if "/" not in stage)
    if state.json:
        facts = {"artifact": str(path), "bytes": path.stat().st_size, "summary": compiled.plan.summary()}
        print_json({**facts, "seconds": seconds})
    else:
        click.echo(compiled.plan.summary())
        click.echo(f"{path}: {size(path.stat().st_size)}, compiled in {total:.1f} s")
        if show_time:
            print_times(seconds, total)
    return ExitCode.OK


def print_times(seconds: Mapping[str, float], total: float) -> None:
    """Print a table of the stages, those of a region below it; ``llvm`` runs beside the others."""
    rows = []
    for stage, part in seconds.items():
        region, _, inner = stage.partition("/")
        rows.append((f"  {inner}" if inner else region, 1e3 * part, 100 * part / total))
    print_table(("STAGE", "MILLISECONDS", "SHARE %"), rows)


def _following(policy: Policy, plan_file: Path) -> Policy:
    """Return the policy with every operator pinned to where a saved plan has it; pins of the policy come first."""
    from graft.partition.plan import Plan

    plan = Plan.from_json(plan_file.read_text(encoding="utf-8"))
    placed = {one.node: one.backend for one in plan.placements if one.backend in plan.backends}
    return replace(policy, pin={**placed, **policy.pin})
