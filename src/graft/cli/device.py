"""`graft device`: a model on a board, or what emulates it: its outputs there, and the time of each of its calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    common_options,
    dim_option,
    is_artifact,
    switch_option,
    values_and_ranges,
)
from graft.cli.output import print_json, print_table
from graft.cli.programs import input_option

if TYPE_CHECKING:
    from graft.core.graph.dimensions import DimensionSpec
    from graft.measure.device.boards import Board
    from graft.runtime.procedure import ProgramDescription

_EPILOG = """\b
Examples:
  graft device model.onnx                            in a process of this machine
  graft device model.onnx --board mps2-an386         on a Cortex-M4 in QEMU
  graft device model.onnx --board mps2-an386 --tune 120   with schedules measured there"""


@click.command("device", epilog=_EPILOG)
@click.argument("model", type=MODEL)
@click.option("--board", default="host", show_default=True, metavar="BOARD", help="`host` or `mps2-an386`.")
@click.option(
    "--tune", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Measure candidates for the schedules of kernels on the board first, for so long, and remember the best.",
)  # fmt: skip
@dim_option
@switch_option
@input_option
@common_options
@click.pass_obj
def command(
    state: State,
    model: Path,
    board: str,
    tune: float | None,
    given: tuple[tuple[str, str], ...],
) -> int:
    """Write MODEL as a C project, upload it to a board, run it there, and show what each call takes.

    Inputs that are not given are random. The outputs are compared with those of this machine.
    """
    import numpy as np

    import graft
    from graft.measure.device.boards import board_named
    from graft.measure.device.session import Session
    from graft.runtime.inputs import inputs_of

    chosen = board_named(board)
    if is_artifact(model):
        raise click.UsageError(f"'{model}' is compiled already, and not for '{board}'; give the model")
    values, ranges = values_and_ranges(state.dims)
    numbers: dict[str, DimensionSpec] = {**ranges, **values}
    description = _description(state, model, chosen, tune, numbers)
    here = graft.compile(str(model), ["llvm"], dims=numbers, strict=True, manager=state.manager())
    feeds = inputs_of(here, given, 0, values)
    arrays = [feeds[one.name] for one in here.inputs]
    wanted = here(*arrays)
    with Session.open(description, chosen) as session:
        outputs = session.run(*arrays)
        unit, per_tick = chosen.unit
        rows = [(one.call, one.ticks * per_tick) for one in session.times]
        total = session.cost
    expected = [wanted] if len(outputs) == 1 else list(wanted)
    differs = max(
        float(np.max(np.abs(got.astype(np.float64) - one.astype(np.float64)), initial=0.0))
        for got, one in zip(outputs, expected, strict=True)
    )
    if state.json:
        calls = [{"function": call.function, "origin": list(call.origin), unit: cost} for call, cost in rows]
        print_json({"board": board, "calls": calls, unit: total, "largest_difference": differs})
        return ExitCode.OK
    whole = sum(cost for _, cost in rows) or 1
    print_table(
        (unit.upper(), "SHARE %", "FUNCTION", "STRATEGY", "NODES"),
        [
            (f"{cost:,.0f}", 100 * cost / whole, call.function, str(call.schedule.get("strategy", "-")),
             ", ".join(call.origin[:3]))
            for call, cost in sorted(rows, key=lambda row: -row[1])
        ],
    )  # fmt: skip
    click.echo(
        f"{len(rows)} calls, {total:,.0f} {unit} on {board}; outputs differ from this machine's by {differs:.3g}"
    )
    return ExitCode.OK


def _description(
    state: State, model: Path, board: Board, tune: float | None, dims: dict[str, DimensionSpec]
) -> ProgramDescription:
    """Return the model as C for a board, with schedules that were measured there if that is asked for."""
    from graft.compiler.api import compile_model
    from graft.compiler.request import Request
    from graft.core.tuning.options import TuneOptions
    from graft.measure.device.session import TuningDevice
    from graft.plugins.c_source.backend import CBackend

    tuning = False if tune is None else TuneOptions(seconds=tune, device=TuningDevice(board))
    request = Request(
        [CBackend(compiles=False)], dims=dims, threads=1, target=board.target, tune=tuning, manager=state.manager(),
        without=state.switched_off,
    )  # fmt: skip
    compiled = compile_model(str(model), request)
    if compiled.tuning is not None:
        click.echo(compiled.tuning.summary(), err=True)
    return compiled.description
