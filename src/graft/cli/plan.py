"""`graft plan`: where every operator would run, why it does not run elsewhere, and what changed between two plans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import (
    MODEL,
    Command,
    ExitCode,
    State,
    backend_options,
    common_options,
    dim_option,
    policy_options,
    precision_option,
)
from graft.cli.output import keep_clear, print_json, print_table

if TYPE_CHECKING:
    from graft.compiler.explaining import NodeExplanation
    from graft.partition.placement.problem import Partitioned
    from graft.partition.plan import Plan
    from graft.partition.plan_diff import PlanChange


class PlanVerbs(click.Group):
    """`graft plan MODEL` and `graft plan diff A B`: what is no verb is a model."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Send everything but ``diff`` to the command that plans."""
        return super().parse_args(ctx, args if args[:1] == ["diff"] else ["model", *args])


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


def gate_options(command: Command) -> Command:
    """Add the gates that a plan must pass: ``--require-coverage``, ``--require-backend``."""
    coverage = click.option(
        "--require-coverage",
        "coverage",
        metavar="[BACKEND:]PCT",
        type=coverage_argument,
        help="Exit 3 if the backend (the first one) gets a smaller share of the operators.",
    )
    backend = click.option(
        "--require-backend", "required", metavar="NAME", multiple=True, help="Exit 3 if the backend gets no operator."
    )
    return coverage(backend(command))


@click.group("plan", cls=PlanVerbs)
def command() -> None:
    """Show where every operator of a model would run; compile nothing."""


@command.command("model", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", type=MODEL)
@backend_options
@dim_option
@precision_option
@policy_options
@click.option("--why", is_flag=True, help="Print the refusals, gathered by reason, and what would change them.")
@click.option("--nodes", is_flag=True, help="Print every operator with its placement and its refusals.")
@click.option("--explain", "explained", metavar="NODE", help="Print why NODE goes where it goes, pattern by pattern.")
@gate_options
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Save the plan, for compile --plan."
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a report for a browser.")
@common_options
@click.pass_obj
def plan_model(
    state: State,
    /,
    model: Path,
    why: bool,
    nodes: bool,
    explained: str | None,
    coverage: tuple[str, float] | None,
    required: tuple[str, ...],
    output: Path | None,
    html: Path | None,
) -> int:
    """Show where every operator of MODEL would run; compile nothing."""
    if explained is not None:
        from graft.compiler.explaining import explain

        _print_explanation(state, explain(
            str(model), explained, state.backends, shapes=dict(state.shapes), dims=dict(state.dims),
            policy=state.policy(), manager=state.manager(),
        ))  # fmt: skip
        return ExitCode.OK
    result = partitioned_as(state, model)
    plan = result.plan
    failures = gate_failures(plan, coverage, required)
    if output is not None:
        from graft.runtime.system.files import write

        keep_clear(output)
        write(output, plan.to_json() + "\n", "plan")
    if html is not None:
        from graft.report.gathering import report_on_model
        from graft.report.html import write_html

        keep_clear(html)
        write_html(report_on_model(model.name, result, state.manager()), html)
    if state.json:
        print_json({"summary": plan.summary(), **json.loads(plan.to_json()), "failures": failures})
    else:
        click.echo(plan.summary())
        for region, reason in plan.parted.items():
            click.echo(f"{region} is a region of its own: {reason}")
        if why:
            _print_why(plan)
        if nodes:
            _print_nodes(plan)
    return gate_code(failures)


@command.command("diff")
@click.argument("before", type=MODEL)
@click.argument("after", type=MODEL)
@click.option("--exit-code", is_flag=True, help="Exit 1 if the plans differ.")
@common_options
@click.pass_obj
def plan_diff(state: State, before: Path, after: Path, exit_code: bool) -> int:
    """Show what differs from plan BEFORE to plan AFTER, both saved with `graft plan -o`."""
    from graft.partition.plan import Plan
    from graft.partition.plan_diff import plan_diff

    old, new = Plan.load(before), Plan.load(after)
    changes = plan_diff(old, new)
    if state.json:
        print_json({"before": old.summary(), "after": new.summary(), "changes": [asdict(one) for one in changes]})
    else:
        _print_changes(old, new, changes)
    return ExitCode.FAILURE if exit_code and changes else ExitCode.OK


def partitioned_as(state: State, model: Path) -> Partitioned:
    """Partition a model; kernels and tuned parameters that are kept are neither read nor written."""
    from graft.compiler.api import partitioned
    from graft.compiler.request import Request

    request = Request(
        state.backends, dict(state.shapes), precision=state.precision, policy=state.policy(), cache=False,
        tuned=False, manager=state.manager(), dims=dict(state.dims),
    )  # fmt: skip
    return partitioned(str(model), request)


def _print_changes(old: Plan, new: Plan, changes: tuple[PlanChange, ...]) -> None:
    click.echo(f"before  {old.summary()}")
    click.echo(f"after   {new.summary()}")
    if old.model != new.model:
        click.echo("the plans are of different models, or of a model that changed")
    if not changes:
        click.echo("no operator is placed differently")
        return
    click.echo()
    rows = [(one.node, one.op_type, one.what, one.before, one.after, one.reason) for one in changes]
    print_table(("NODE", "OPERATOR", "CHANGE", "BEFORE", "AFTER", "REASON"), rows)


def _print_why(plan: Plan) -> None:
    """Print the refusals by backend and reason, and below them what would change each kind."""
    from graft.report.reasons import advice, reason_groups, shortened

    groups = reason_groups(plan)
    if not groups:
        return
    click.echo()
    rows = [
        (one.backend, one.code, len(one.nodes), one.text.strip().rpartition("\n")[2],
         shortened([f"{name} {count}" for name, count in one.operators], 4), shortened(one.nodes))
        for one in groups
    ]  # fmt: skip
    print_table(("BACKEND", "CODE", "OPERATORS", "REASON", "OF TYPE", "NODES"), rows)
    click.echo()
    codes = dict.fromkeys(one.code for one in groups)
    print_table(("CODE", "WHAT WOULD CHANGE IT"), [(code, advice(code)) for code in codes])


def _print_explanation(state: State, found: NodeExplanation) -> None:
    if state.json:
        print_json(found.to_json())
        return
    row = found.placement
    click.echo(f"{row.op_type} (node '{row.node}'): {row.backend or 'nobody'} {row.composite}".rstrip())
    if row.reasons:
        click.echo()
        print_table(("BACKEND", "CODE", "REASON"), [(name, one.code, one.text) for name, one in row.reasons.items()])
    if found.patterns:
        click.echo()
        rows = [(one.backend, one.composite, one.code, one.text) for one in found.patterns]
        print_table(("BACKEND", "COMPOSITE", "CODE", "WHAT BECAME OF IT"), rows)


def _print_nodes(plan: Plan) -> None:
    click.echo()
    rounded = any(row.precision for row in plan.placements)
    rows = [
        (row.node, row.op_type, row.backend or "nobody", row.region, row.composite,
         *((row.precision,) if rounded else ()),
         "; ".join(f"{backend}: {reject.code}" for backend, reject in row.reasons.items()))
        for row in plan.placements
    ]  # fmt: skip
    heads = ("NODE", "OPERATOR", "BACKEND", "REGION", "COMPOSITE", *(("PRODUCTS",) if rounded else ()), "REFUSALS")
    print_table(heads, rows)


def gate_failures(plan: Plan, coverage: tuple[str, float] | None, required: tuple[str, ...]) -> list[str]:
    """Return what the gates miss; raise UsageError for a backend that the plan does not have."""
    wanted: list[tuple[str, float | None, str]]
    wanted = [(coverage[0] or plan.backends[0], coverage[1], "--require-coverage")] if coverage is not None else []
    wanted += [(name, None, "--require-backend") for name in required]
    failures = []
    for backend, percent, option in wanted:
        if backend not in plan.backends:
            raise click.UsageError(
                f"{option} names '{backend}', which is not among the backends {', '.join(plan.backends)}"
            )
        count, actual = sum(row.backend == backend for row in plan.placements), 100 * plan.coverage(backend)
        if count if percent is None else actual >= percent:
            continue
        reasons = ", ".join(f"{code} {count}" for code, count in plan.reasons(backend).items())
        missing = "no operators, some are" if percent is None else f"{actual:.1f} % of the operators, {percent:g} % are"
        failures.append(f"'{backend}' has {missing} required; reasons: {reasons or 'none'}")
    return failures


def gate_code(failures: Sequence[str]) -> int:
    """Tell what the gates miss, and return the exit code."""
    for failure in failures:
        click.echo(f"graft: {failure}", err=True)
    return ExitCode.COVERAGE if failures else ExitCode.OK
