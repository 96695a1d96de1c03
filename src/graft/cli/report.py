"""`graft report`: a plan, or an artifact, as one page for a browser."""

from __future__ import annotations

from pathlib import Path

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    common_options,
    dim_option,
    is_artifact,
    policy_options,
)
from graft.cli.output import keep_clear, print_json
from graft.cli.plan import partitioned_as
from graft.cli.programs import refuse_options
from graft.report.quantities import size


@click.command("report")
@click.argument("file", type=MODEL)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The page; FILE.html by default.")
@backend_options
@dim_option
@policy_options
@common_options
@click.pass_obj
def command(state: State, file: Path, output: Path | None) -> int:
    """Write a report on FILE, an artifact or a model: graph, placement, reasons, boundaries, contents.

    The page needs no network and no other file.
    """
    from graft.report.gathering import report_on_artifact, report_on_model
    from graft.report.html import write_html

    if is_artifact(file):
        refuse_options(file, [*state.named(), *(["--dim"] if state.dims else [])])
        report = report_on_artifact(file, state.manager())
    else:
        report = report_on_model(file.name, partitioned_as(state, file), state.manager())
    path = output or file.with_suffix(".html")
    keep_clear(path)
    written = write_html(report, path)
    if state.json:
        print_json({"report": str(path), "bytes": written, "summary": report.plan.summary()})
    else:
        click.echo(report.plan.summary())
        click.echo(f"{path}: {size(written)}")
    return ExitCode.OK
