"""`graft bisect`: a bad result cut down to the smallest model that has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    common_options,
    comparison_options,
    compile_options,
    dim_option,
    policy_options,
    switch_option,
    values_and_ranges,
)
from graft.cli.isolation import isolation_option
from graft.cli.output import print_json
from graft.cli.programs import feeds_of, input_option

if TYPE_CHECKING:
    from graft.measure.bisect.report import BisectReport


@click.command("bisect")
@click.argument("model", type=MODEL)
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path),
    help="A folder for the smallest model, its inputs, and a script of two lines.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True,
    help="The time after which no further trial begins.",
)  # fmt: skip
@comparison_options()
@input_option
@backend_options
@dim_option
@compile_options
@switch_option
@policy_options
@isolation_option
@common_options
@click.pass_obj
def command(
    state: State,
    model: Path,
    output: Path | None,
    against: str,
    seconds: float,
    rtol: float,
    atol: float,
    given: tuple[tuple[str, str], ...],
) -> int:
    """Find the smallest part of MODEL that fails, and the passes at fault; exit 4 if there is one.

    --switch-off and --isolate hold for every trial; each optimisation and each pass is then switched off in turn.
    """
    import graft

    values, ranges = values_and_ranges(state.dims)
    report: BisectReport = graft.bisect(
        str(model), state.backends, output=output, against=against,
        inputs=feeds_of(state, model, given, ranges, values), shapes=dict(state.shapes), dims={**ranges, **values},
        threads=state.threads, strict=state.strict, without=state.switched_off, isolation=dict(state.isolation) or None,
        rtol=rtol, atol=atol, seconds=seconds, policy=state.policy(), manager=state.manager(),
    )  # fmt: skip
    if state.json:
        print_json(report.to_json())
    else:
        click.echo(str(report))
    return ExitCode.OK if report.ok else ExitCode.ACCURACY
