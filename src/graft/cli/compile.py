"""`graft compile`: a model becomes an artifact."""

from __future__ import annotations

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
from graft.cli.plan import check_gates, gate_options, read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command("compile")
@click.argument("model", type=MODEL)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The artifact; MODEL.graft by default."
)
@backend_options
@compile_options
@policy_options
@click.option("--plan", "plan_file", type=MODEL, help="Follow a plan that `graft plan -o` saved.")
@gate_options
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
    required: tuple[str, ...],
    cpu: str,
    keep: Path | None,
    no_cache: bool,
    show_time: bool,
    **wishes: Any,
) -> int:
    """Compile MODEL to one artifact."""
    from graft.api import compile_model
    from graft.runtime.artifact import save

    compiled = compile_model(
        str(model),
        names_or_none(backends),
        shapes=dict(shapes),
        threads=threads,
        cpu=cpu,
        strict=strict,
        cache=not no_cache,
        policy=policy_of(wishes),
        plan=None if plan_file is None else read_plan(plan_file),
        keep_intermediates=keep,
        manager=state.manager(),
    )
    gate = check_gates(compiled.plan, coverage, required)
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
