"""`graft plan`: where every operator would run, and why it does not run elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    common_options,
    names_or_none,
    policy_of,
    policy_options,
)
from graft.cli.output import print_json, print_table

if TYPE_CHECKING:
    from graft.partition.plan import Plan


def coverage_argument(text: str) -> tuple[str, float]:
    """Return backend ("" for the first one) and percent of ``80`` or ``onednn:80``."""
    backend, _, percent = text.rpartition(":")
    try:
        share = float(percent)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 100:
        raise click.BadParameter(f"'{text}' is not a coverage; write a number from 0 to 100, or onednn:80")
    return backend, share


coverage_option = click.option(
    "--require-coverage",
    "coverage",
    metavar="[BACKEND:]PCT",
    type=coverage_argument,
    help="Exit 3 if the backend (the first one) gets a smaller share of the operators.",
)


@click.command("plan")
@click.argument("model", type=MODEL)
@backend_options
@policy_options
@click.option("--why", is_flag=True, help="Print every refusal with its reason.")
@coverage_option
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Save the plan, for compile --plan."
)
@common_options
@click.pass_obj
def command(
    state: State,
    /,
    model: Path,
    backends: tuple[str, ...] | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    why: bool,
    coverage: tuple[str, float] | None,
    output: Path | None,
    **wishes: Any,
) -> int:
    """Show where every operator of MODEL would run; compile nothing."""
    import graft

    plan = graft.plan(
        str(model), names_or_none(backends), shapes=dict(shapes), policy=policy_of(wishes), manager=state.manager()
    )
    if output is not None:
        output.write_text(plan.to_json() + "\n", encoding="utf-8")
    if state.json:
        print_json({"summary": plan.summary(), **json.loads(plan.to_json())})
    else:
        click.echo(plan.summary())
        if why:
            print_table(
                ("NODE", "OPERATOR", "BACKEND", "CODE", "REASON"),
                [(row.node, row.op_type, row.backend, row.code, row.text) for row in plan.why()],
            )
    return check_coverage(plan, coverage)


def check_coverage(plan: Plan, coverage: tuple[str, float] | None) -> int:
    """Return the exit code of the coverage gate, having said what is missing."""
    if coverage is None:
        return ExitCode.OK
    backend, required = coverage[0] or plan.backends[0], coverage[1]
    if backend not in plan.backends:
        raise click.UsageError(
            f"--require-coverage names '{backend}', which is not among the backends {', '.join(plan.backends)}"
        )
    actual = 100 * plan.coverage(backend)
    if actual >= required:
        return ExitCode.OK
    reasons = ", ".join(f"{code} {count}" for code, count in plan.reasons(backend).items())
    click.echo(
        f"graft: '{backend}' has {actual:.1f} % of the operators, {required:g} % are required; reasons: {reasons}",
        err=True,
    )
    return ExitCode.COVERAGE
