"""`graft bench`: latency, beside peers measured in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    bindings_and_ranges,
    common_options,
    dims_argument,
    is_artifact,
    names_argument,
    policy_options,
    precision_option,
    switch_option,
    threads_option,
    trust_options,
)
from graft.cli.isolation import isolation_option
from graft.cli.output import print_json, print_table
from graft.cli.programs import load_artifact, open_program, refuse_options
from graft.report.quantities import size

if TYPE_CHECKING:
    from graft.core.graph.dimensions import DimensionSpec
    from graft.measure.latency import BenchReport


@click.command("bench")
@click.argument("file", type=MODEL, required=False)
@click.option("--roofline", is_flag=True, help="Measure what this machine can do at most, instead of a FILE.")
@click.option("--model", type=MODEL, help="The model that the artifact FILE was compiled from, for --compare.")
@click.option(
    "--compare",
    metavar="NAME,...",
    type=names_argument,
    default=None,
    help="Peers to measure in turns with it: onnxruntime, openvino, mnn, torch, iree, tvm.",
)
@threads_option("Threads of all contestants; all available by default.")
@click.option("--seconds", type=click.FloatRange(min=0), default=3.0, show_default=True, help="The time for all.")
@backend_options
@click.option(
    "--dim",
    "dims",
    metavar="NAME=16,32|1..512",
    type=dims_argument,
    multiple=True,
    help="The numbers of a dimension to measure with, each in turn, or its range to compile for.",
)
@switch_option
@precision_option
@policy_options
@isolation_option
@trust_options
@common_options
@click.pass_obj
def command(
    state: State,
    file: Path | None,
    roofline: bool,
    model: Path | None,
    compare: tuple[str, ...] | None,
    seconds: float,
    dims: tuple[tuple[str, DimensionSpec | list[int]], ...],
) -> int:
    """Measure the latency of FILE, an artifact or a model."""
    if roofline:
        return _roofline(state, state.threads or 1)
    if file is None:
        raise click.UsageError("name a FILE to measure, or --roofline for the machine by itself")
    from graft.measure.latency import bench, bench_program
    from graft.runtime.inputs import inputs_of

    program = load_artifact(state, file) if is_artifact(file) else None
    bindings, ranges = bindings_and_ranges(dims)
    if program is not None:
        refuse_options(file, [one for one in state.named(ranges) if one != "--shape" or model is None])
    source = model if program is not None else file
    if source is None and compare:
        raise click.UsageError(f"'{file}' is an artifact; name the model that it came from with --model to compare")
    if len(bindings) > 1 and program is None:
        program = open_program(state, file, ranges)
    reports = []
    for binding in bindings:
        if source is None:
            assert program is not None, file
            report = bench_program(program, inputs_of(program, (), 0, binding), seconds)
        else:
            report = bench(
                str(source), state.backends, program=program, compare=compare or (), threads=state.threads,
                seconds=seconds, shapes=dict(state.shapes), dims={**ranges, **binding}, precision=state.precision,
                without=state.switched_off, policy=state.policy(), manager=state.manager(),
            )  # fmt: skip
        reports.append(report)
    _print(state, bindings, reports)
    return ExitCode.OK


def _print(state: State, bindings: Sequence[Mapping[str, int]], reports: Sequence[BenchReport]) -> None:
    """Print what was measured, once for each binding of dimensions."""
    if state.json:
        rows = [{"dims": dict(one), **report.to_json()} for one, report in zip(bindings, reports, strict=True)]
        print_json(reports[0].to_json() if len(reports) == 1 else {"bindings": rows})
        return
    columns = ("NAME", "MEDIAN ms", "MIN ms", "P90 ms", "P99 ms", "ROUNDS", "GRAFT / NAME")
    for binding, report in zip(bindings, reports, strict=True):
        if len(reports) > 1:
            click.echo(" ".join(f"{name}={value}" for name, value in binding.items()))
        print_table(
            columns,
            [
                (row.name, row.median_ms, row.min_ms, row.p90_ms, row.p99_ms, row.rounds, row.ratio)
                for row in report.rows
            ],
        )
    threads = reports[0].threads
    click.echo(f"{threads} thread{'' if threads == 1 else 's'}; ratio: median over rounds")


def _roofline(state: State, threads: int) -> int:
    """Print the limits of one core."""
    from graft.measure.roofline import measure_roofline

    found = measure_roofline(threads)
    if state.json:
        print_json(found.to_json())
        return ExitCode.OK
    rows = [("float32 multiply-add", found.flops / 1e9, "GFLOP/s")]
    rows += [(f"reading {size(limit)}", rate / 1e9, "GB/s") for limit, rate in found.bandwidth]
    print_table(("LIMIT OF ONE CORE", "RATE", "UNIT"), rows)
    return ExitCode.OK
