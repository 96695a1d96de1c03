"""`graft run`: an artifact or a model runs once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    common_options,
    compile_options,
    dim_option,
    is_artifact,
    policy_options,
    precision_option,
    switch_option,
    trust_options,
    values_and_ranges,
)
from graft.cli.isolation import isolation_option
from graft.cli.output import print_json, print_table
from graft.cli.programs import input_option, open_program
from graft.report.quantities import shape

if TYPE_CHECKING:
    import numpy as np


@click.command("run")
@click.argument("file", type=MODEL)
@input_option
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="Write each output to this folder as .npy."
)
@click.option(
    "--steps", type=click.IntRange(min=1), help="Run so many times, the growing caches handed back to the next one."
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End a run that is not done after so many seconds.",
)
@click.option(
    "--check-numerics", is_flag=True, help="Name the first node of a model that gives a NaN or an infinity of its own."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of random inputs.")
@backend_options
@dim_option
@compile_options
@switch_option
@precision_option
@policy_options
@isolation_option
@trust_options
@common_options
@click.pass_obj
def command(
    state: State,
    file: Path,
    given: tuple[tuple[str, str], ...],
    output: Path | None,
    steps: int | None,
    deadline: float | None,
    check_numerics: bool,
    seed: int,
) -> int:
    """Run FILE, an artifact or a model, once, and show its outputs.

    With --steps, a decoder keeps its caches between the runs, and its other inputs are the same in all of them.
    """
    from graft.runtime.inputs import facts, inputs_of, write_arrays

    values, ranges = values_and_ranges(state.dims)
    program = open_program(state, file, ranges)
    feeds = inputs_of(program, given, seed, values)
    if check_numerics:
        _check_numerics(state, file, feeds)
    caches: list[dict[str, object]] = []
    if steps is None:
        results = program.run(feeds, deadline=deadline)
    else:
        bound = program.bind()
        feeds = {one.name: feeds[one.name] for one in bound.inputs}
        for _ in range(steps):
            results = bound.run(feeds, deadline=deadline)
        kept = bound.state
        caches = [{**asdict(one), "rows": kept[one.input].shape[one.axis]} for one in program.caches]
    rows = facts(results)
    if output is not None:
        write_arrays(results, rows, output)
    if state.json:
        print_json({"outputs": rows} if steps is None else {"outputs": rows, "caches": caches})
    else:
        columns = ("OUTPUT", "DTYPE", "SHAPE", "MIN", "MEAN", "MAX", "FILE")
        cells = [
            (one["name"], one["dtype"], shape(one["shape"]), *(one.get(key) for key in ("min", "mean", "max", "file")))
            for one in rows
        ]
        print_table(columns, cells)
        if caches:
            click.echo()
            keys = ("input", "output", "axis", "rows", "copied")
            print_table(
                ("CACHE", "OUTPUT", "AXIS", "ROWS", "COPIED"), [tuple(one[key] for key in keys) for one in caches]
            )
    return ExitCode.OK


def _check_numerics(state: State, file: Path, feeds: Mapping[str, np.ndarray]) -> None:
    """Raise RunError where a value of a model stops being finite."""
    from graft.errors import RunError
    from graft.training import check_numerics

    if is_artifact(file):
        raise click.UsageError(f"'{file}' is compiled already: --check-numerics is for models")
    fault = check_numerics(
        str(file), feeds, shapes=dict(state.shapes), threads=state.threads, manager=state.manager(),
        backends=state.backends,
    )  # fmt: skip
    if fault is not None:
        raise RunError(str(fault), node=fault.node, value=fault.value)
