"""`graft verify`: a compiled model against the one it came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    bindings_and_ranges,
    common_options,
    comparison_options,
    compile_options,
    dims_argument,
    is_artifact,
    policy_options,
    switch_option,
    trust_options,
)
from graft.cli.isolation import isolation_option
from graft.cli.output import print_json, print_table
from graft.cli.programs import feeds_of, input_option, load_artifact
from graft.cli.quantize import (
    Data,
    FromFile,
    batches_of,
    metric_option,
    preprocess_option,
    print_comparison,
)

if TYPE_CHECKING:
    from graft.core.graph.dimensions import DimensionSpec
    from graft.measure.differences import Difference
    from graft.measure.vendor_simulators import LayerReport
    from graft.measure.verification import VerifyReport
    from graft.quantization.metrics import Metric
    from graft.quantization.statistics.data import Given
    from graft.runtime.program import Program

SIMULATOR = "vendor-simulator"


@click.command("verify")
@click.argument("file", type=MODEL)
@click.option("--model", type=MODEL, help="The model that the artifact FILE was compiled from.")
@click.option("--original", type=MODEL, help="The float model that FILE is quantised from: compare layer by layer.")
@click.option(
    "--data", type=Data(), metavar="FILE.npz|DIR|FILE.py:FUNCTION",
    help="With --original: what to run on, as for graft quantize; else random.",
)  # fmt: skip
@preprocess_option
@metric_option
@click.option(
    "--snr", type=float, default=20.0, show_default=True, metavar="DB",
    help="With --original: the least signal-to-noise ratio of an output.",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(min=0), metavar="N",
    help="Judge quantised values by steps of their scale, at most N apart, and count them.",
)  # fmt: skip
@click.option("--per-region", is_flag=True, help="Check every region too, by itself and inside the program.")
@comparison_options(SIMULATOR)
@backend_options
@click.option(
    "--dim", "dims", metavar="NAME=16,32|1..512", type=dims_argument, multiple=True,
    help="The numbers of a dimension to compare at, each in turn, or its range to compile for.",
)  # fmt: skip
@input_option
@compile_options
@switch_option
@policy_options
@isolation_option
@trust_options
@common_options
@click.pass_obj
def command(
    state: State,
    file: Path,
    model: Path | None,
    original: Path | None,
    data: Path | FromFile | None,
    preprocess: Callable[..., Any] | None,
    metric: Callable[..., Any] | None,
    snr: float,
    against: str,
    per_region: bool,
    steps: int | None,
    rtol: float,
    atol: float,
    dims: tuple[tuple[str, DimensionSpec | list[int]], ...],
    given: tuple[tuple[str, str], ...],
) -> int:
    """Compare FILE, an artifact or a model, with a reference; exit 4 where it differs by more than the tolerance."""
    import graft

    if original is not None:
        return _against_floats(state, file, original, batches_of(data, preprocess), metric, snr)
    program = _program_of(state, file, model)
    bindings, ranges = bindings_and_ranges(dims)
    reports = [
        graft.verify(
            str(model or file),
            state.backends,
            program=program,
            against=against,
            per_region=per_region,
            inputs=feeds_of(state, model or file, given, ranges, binding),
            shapes=dict(state.shapes),
            dims={**ranges, **binding},
            threads=state.threads,
            strict=state.strict,
            without=state.switched_off,
            isolation=dict(state.isolation) or None,
            policy=state.policy(),
            rtol=rtol,
            atol=atol,
            steps=steps,
            manager=state.manager(),
        )
        for binding in bindings
    ]
    ok = all(report.ok for report in reports)
    if state.json:
        rows = [{"dims": one, **report.to_json()} for one, report in zip(bindings, reports, strict=True)]
        print_json(reports[0].to_json() if len(reports) == 1 else {"ok": ok, "bindings": rows})
    else:
        steps = 1 if steps is None and against == SIMULATOR else steps
        within = f"rtol {rtol:g}, atol {atol:g}" + ("" if steps is None else f", {steps} steps of quantised values")
        _print_reports(bindings, reports, f"{file} {'agrees with' if ok else 'differs from'} {against} ({within})")
    return ExitCode.OK if ok else ExitCode.ACCURACY


def _program_of(state: State, file: Path, model: Path | None) -> Program | None:
    """Return the program of an artifact, which came from a model, or None where the file is a model itself."""
    if not is_artifact(file):
        if model is not None:
            raise click.UsageError(f"'{file}' is a model itself; --model goes with an artifact")
        return None
    if model is None:
        raise click.UsageError(f"'{file}' is an artifact; name the model that it came from with --model")
    if state.switched_off:
        raise click.UsageError(f"'{file}' is compiled already: --switch-off is for models")
    return load_artifact(state, file, strict=state.strict)


def _print_reports(bindings: Sequence[Mapping[str, int]], reports: Sequence[VerifyReport], verdict: str) -> None:
    for binding, report in zip(bindings, reports, strict=True):
        if len(reports) > 1:
            click.echo(" ".join(f"{name}={value}" for name, value in binding.items()))
        _print_report(report)
    click.echo(verdict)
    for report in reports:
        _print_fault(report)


def _against_floats(state: State, file: Path, original: Path, data: Given, metric: Metric | None, least: float) -> int:
    """Compare a quantised model with its float model; exit 4 where an output has less signal than wanted."""
    from graft.quantization import compare

    if is_artifact(file):
        raise click.UsageError(f"'{file}' is an artifact: --original goes with a quantised model")
    report = compare(
        original, file, data, metric=metric, shapes=dict(state.shapes), threads=state.threads, manager=state.manager()
    )
    ok = report.snr_db >= least
    if state.json:
        print_json({**report.to_json(), "ok": ok})
    else:
        print_comparison(report)
        verdict = "keeps" if ok else "loses"
        click.echo(f"{file} {verdict} the signal of {original}: {report.snr_db:.1f} dB, at least {least:g} wanted")
    return ExitCode.OK if ok else ExitCode.ACCURACY


def _print_layers(layers: Sequence[LayerReport]) -> None:
    """Print every layer with how many elements are off, by one step and by more, and a histogram of all of them."""
    rows, total = [], Counter[int]()
    for row in layers:
        steps = row.simulated.steps
        total.update(steps)
        one = steps.get(-1, 0) + steps.get(1, 0)
        more = sum(count for step, count in steps.items() if abs(step) > 1)
        counts = (one, more) if steps else ("", "")
        rows.append(
            (row.output, row.backend, row.simulated.max_abs, *counts,
             "" if row.program is None else row.program.max_abs, _yes(row.ok))
        )  # fmt: skip
    heads = ("OUTPUT OF LAYER", "BACKEND", "MAX ABS", "LAST BIT", "MORE", "PROGRAM ABS", "WITHIN")
    print_table(heads, rows)
    if not total:
        return
    click.echo()
    largest, whole = max(total.values()), total.total()
    print_table(("STEPS", "ELEMENTS", "SHARE", ""), [
        (f"{step:+d}" if step else "0", f"{count:,}", f"{100 * count / whole:.3f} %", "#" * -(-40 * count // largest))
        for step, count in sorted(total.items())
    ])  # fmt: skip


def _print_report(report: VerifyReport) -> None:
    if report.layers:
        _print_layers(report.layers)
        return
    print_table(
        ("OUTPUT", "MAX ABS", "MAX REL", "WITHIN"),
        [(row.name, row.difference.max_abs, row.difference.max_rel, _yes(row.difference.ok)) for row in report.outputs],
    )
    _print_steps([(row.name, row.difference) for row in report.outputs])
    if not report.regions:
        return
    click.echo()
    columns = ("REGION", "BACKEND", "OUTPUT", "ISOLATED ABS", "ISOLATED REL", "ACCUMULATED ABS", "WITHIN")
    rows = [
        (row.region, row.backend, row.output, row.isolated.max_abs, row.isolated.max_rel, row.accumulated.max_abs,
         _yes(row.isolated.ok))
        for row in report.regions
    ]  # fmt: skip
    print_table(columns, rows)
    _print_steps([(f"{row.region} {row.output}", row.isolated) for row in report.regions])


def _print_steps(rows: Sequence[tuple[str, Difference]]) -> None:
    """Print how many elements are how many steps apart."""
    for name, difference in rows:
        if difference.steps:
            counts = ", ".join(f"{step:+d}: {count:,}" if step else f"0: {count:,}"
                               for step, count in difference.steps.items())  # fmt: skip
            click.echo(f"steps of {name}: {counts}")


def _print_fault(report: VerifyReport) -> None:
    if report.first_bad is not None:
        click.echo(f"first bad: {report.first_bad}")
    elif report.regions and not report.ok:
        click.echo("no region is wrong: a pass changed what the model computes; graft bisect finds which")


def _yes(ok: bool) -> str:
    return "yes" if ok else "no"
