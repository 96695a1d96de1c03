"""`graft compile`: a model becomes an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from graft.cli.output import print_json, size
from graft.cli.plan import check_gates, gate_options, read_plan


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
        policy=policy_of(wishes),
        plan=None if plan_file is None else read_plan(plan_file),
        keep_intermediates=keep,
        manager=state.manager(),
    )
    gate = check_gates(compiled.plan, coverage, required)
    if gate:
        return gate
    path = output or model.with_suffix(".graft")
    save(compiled.description, path)
    seconds = sum(compiled.seconds.values())
    if state.json:
        facts = {"artifact": str(path), "bytes": path.stat().st_size, "summary": compiled.plan.summary()}
        print_json({**facts, "seconds": dict(compiled.seconds)})
    else:
        click.echo(compiled.plan.summary())
        click.echo(f"{path}: {size(path.stat().st_size)}, compiled in {seconds:.1f} s")
    return ExitCode.OK
