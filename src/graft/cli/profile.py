"""`graft profile`: the time of every call of a program."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    common_options,
    compile_options,
    dim_option,
    policy_options,
    precision_option,
    switch_option,
    trust_options,
    values_and_ranges,
)
from graft.cli.isolation import isolation_option
from graft.cli.output import keep_clear, print_json, print_table
from graft.cli.programs import input_option, open_program
from graft.report.quantities import dearer, knobs

if TYPE_CHECKING:
    from graft.runtime.procedure import Schedule


@click.command("profile")
@click.argument("file", type=MODEL)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a trace for Perfetto.")
@input_option
@click.option("--runs", type=click.IntRange(min=1), default=10, show_default=True, help="Runs; the fastest counts.")
@click.option("--top", type=click.IntRange(min=1), default=15, show_default=True, help="How many calls to print.")
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
    output: Path | None,
    given: tuple[tuple[str, str], ...],
    runs: int,
    top: int,
) -> int:
    """Show which calls of FILE, an artifact or a model, take the time."""
    from graft.measure.roofline import achieved, measure_roofline, traffic_of
    from graft.runtime.devices import call_text
    from graft.runtime.inputs import inputs_of

    values, ranges = values_and_ranges(state.dims)
    program = open_program(state, file, ranges)
    roofline = measure_roofline(program.threads) if find_spec("llvmlite") and find_spec("onnx_ir") else None
    feeds = inputs_of(program, given, 0, values)
    arrays = [feeds[one.name] for one in program.inputs]
    procedure, times = min((program.timed(*arrays) for _ in range(runs)), key=lambda run: sum(run[1]))
    rows: list[dict[str, Any]] = [
        {
            "function": call.function or call_text(call, procedure, program.devices),
            "origin": list(call.origin),
            "nanoseconds": nanoseconds,
        }
        for call, nanoseconds in zip(procedure.calls, times, strict=True)
    ]
    run = [array.shape for array in arrays] if find_spec("onnx_ir") else []
    for row, traffic in zip(rows, traffic_of(program.description, procedure, run), strict=True):
        row |= achieved(traffic, row["nanoseconds"], roofline)
    for row, call in zip(rows, procedure.calls, strict=True):
        row["schedule"] = dict(call.schedule)
    if output is not None:
        from graft.runtime.system.files import write

        keep_clear(output)
        write(output, json.dumps(trace(rows)), "trace")
    if state.json:
        print_json({"calls": rows})
        return ExitCode.OK
    total = sum(row["nanoseconds"] for row in rows) or 1
    slowest = sorted(rows, key=lambda row: -row["nanoseconds"])[:top]
    print_table(
        ("MICROSECONDS", "SHARE %", "GFLOP/s", "GB/s", "OF LIMIT %", "FUNCTION", "STRATEGY", "NODES"),
        [
            (
                row["nanoseconds"] / 1e3, 100 * row["nanoseconds"] / total, row["gflops"], row["gbytes"],
                row["of_limit"], row["function"], _strategy(row["schedule"]), _shortened(row["origin"]),
            )
            for row in slowest
        ],
    )  # fmt: skip
    if roofline is not None:
        reached = sum(row["of_limit"] * row["nanoseconds"] for row in rows) / total
        click.echo(
            f"one core: {roofline.flops / 1e9:.0f} GFLOP/s, {roofline.bandwidth[-1][1] / 1e9:.0f} GB/s from memory; "
            f"all calls together reach {reached:.0f} % of their limits"
        )
    click.echo(f"{len(rows)} calls, {total / 1e6:.3f} ms in the fastest of {runs} runs")
    return ExitCode.OK


def trace(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return calls as a trace in Chrome's event format, which Perfetto reads; times are microseconds."""
    events, start = [], 0.0
    for row in rows:
        duration = row["nanoseconds"] / 1e3
        arguments: dict[str, Any] = {"nodes": row["origin"]}
        arguments |= {key: row[key] for key in ("gflops", "gbytes", "of_limit", "schedule")}
        events.append(
            {"name": row["function"], "ph": "X", "ts": start, "dur": duration, "pid": 0, "tid": 0, "args": arguments}
        )
        start += duration
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _strategy(schedule: Schedule) -> str:
    if not schedule:
        return "-"
    refused = dearer(schedule)
    return f"{schedule['strategy']} {knobs(schedule)}".strip() + (f"; not {refused}" if refused else "")


def _shortened(names: list[str], limit: int = 3) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
