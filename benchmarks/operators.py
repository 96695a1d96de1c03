"""Every operator by itself, against ONNX Runtime and the machine.

    python -m benchmarks.operators [OPERATOR ...] [--rows FILE] [--page docs/operators.md]

Every row is one small model at one of three sizes (`benchmarks.families.operator_cases`). Ours and the peer's are
called again and again, in turns of some calls each, with everything in the caches that fits there; a row says the best
turn of each. *of the limit* is the least time that the machine allows, for the operations that the table of operators
counts or for reading and writing each byte once, by the time taken; the machine is measured in the same run. With
``--rows`` a run adds its rows to those that a file of JSON has, and ``--page`` writes all of them as a page.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx_ir as ir

import graft
from benchmarks.families.operator_cases import CASES, LEFT_OUT, REASONS, Shape, model_of
from benchmarks.peers import best_turns, machine
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import program_run
from graft.measure.peers.peer_table import installed, peer
from graft.measure.roofline import Roofline, measure_roofline
from graft.runtime.system import files

TURNS = 6
LEAST = 0.3
"""The share of the limit below which a row says why."""
SHORT, ENTERED = 6.0, 1.2
"""Microseconds of a call in which entering it shows, and of one that is little else."""
FLOPS_A_BYTE = 4
"""Operations for each byte beyond which a row says the rate of operations."""


@dataclass(frozen=True, slots=True)
class Row:
    """One operator at one size: seconds of a call and of compiling, operations, bytes, and the least seconds."""

    operator: str
    shape: Shape
    seconds: float
    theirs: float | None
    least: float
    flops: int
    moved: int
    compiled: float

    @property
    def share(self) -> float:
        """Return the share of the limit."""
        return self.least / self.seconds

    @property
    def ratio(self) -> float:
        """Return our time by the peer's, NaN where it cannot run the model."""
        return math.nan if self.theirs is None else self.seconds / self.theirs

    @property
    def why(self) -> str:
        """Return why a row is far from the limit, "" where it is not or nothing is known."""
        if self.share >= LEAST:
            return ""
        known, taken = REASONS.get(self.operator, ""), 1e6 * self.seconds
        return "entering the program takes as long" if taken < (ENTERED if known else SHORT) else known

    def line(self) -> str:
        """Return the row in Markdown: the rate is of what bounds it, operations or bytes."""
        amount, unit = (self.flops, "GFLOP/s") if self.flops > FLOPS_A_BYTE * self.moved else (self.moved, "GB/s")
        rate = f"{amount / self.seconds / 1e9:.1f} {unit}"
        theirs = "-" if self.theirs is None else f"{1e6 * self.theirs:.1f}"
        ratio = "-" if self.theirs is None else f"{self.ratio:.2f}"
        shape = "x".join(map(str, self.shape))
        return (
            f"| {self.operator} | {shape} | {1e6 * self.seconds:.1f} | {rate} | {self.share:.0%} | {theirs} | {ratio} "
            f"| {1e3 * self.compiled:.0f} | {self.why} |"
        )


def row(operator: str, shape: Shape, seconds: float, roofline: Roofline, *, against: bool) -> Row:
    """Measure an operator at one size."""
    source = graft.load(model_of(operator, shape))
    feeds = sample_inputs(source)
    started = perf_counter()
    program = graft.compile(source, threads=1, cache=False)
    compiled = perf_counter() - started
    runs = [program_run(program, feeds)]
    if against:
        try:
            runs.append(peer("onnxruntime", source, feeds, 1))
        except Exception as error:  # it has no kernel for some types
            print(f"onnxruntime cannot run {operator}: {error}"[:200])
    times = best_turns(runs, seconds, TURNS)
    results = runs[0]()
    outputs = results if isinstance(results, list | tuple) else [results]
    constants = [one.const_value for one in source.graph.initializers.values() if one.const_value is not None]
    moved = sum(np.asarray(one).nbytes for one in (*feeds.values(), *outputs)) + sum(one.nbytes for one in constants)
    flops = _flops(source)
    least = max(flops / roofline.flops, moved / roofline.bytes_per_second(moved))
    return Row(operator, shape, times[0], times[1] if len(times) > 1 else None, least, flops, moved, compiled)


def _flops(model: ir.Model) -> int:
    rows = [(OPERATORS.of(node), node) for node in map(NodeView, model.graph)]
    return sum(found.cost(node).flops for found, node in rows if found is not None and found.cost is not None)


def summary(rows: Sequence[Row]) -> str:
    """Return one line about all rows."""
    ratios = [one.ratio for one in rows if one.theirs is not None]
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    below = sum(one.share < LEAST for one in rows)
    return (
        f"{len(rows)} rows, {below} below {LEAST:.0%} of the limit; of onnxruntime: geometric mean {mean:.2f}, "
        f"{sum(one > 1 for one in ratios)} behind, {sum(one > 1.2 for one in ratios)} by more than a fifth; "
        f"compiling: median {1e3 * float(np.median([one.compiled for one in rows])):.0f} ms"
    )


INTRODUCTION = """\
Every operator by itself at three sizes, one thread, beside ONNX Runtime: best turns, in caches what fits there.
*rate* is of bytes read and written once, or of operations; *of the limit* what the machine allows at least for them, by
the time taken: above 100 % inputs come out of caches while the limit is that of memory. ONNX Runtime's time varies with
the machine's other work as ours does; rows of a few microseconds are the call itself.
`python -m benchmarks.operators --page docs/operators.md` writes this page."""
HEAD = """\
| operator | shape | µs | rate | of the limit | onnxruntime µs | ratio | compile ms | why |
|---|---|---:|---:|---:|---:|---:|---:|---|"""


def page(rows: Sequence[Row], said: str) -> str:
    """Return the page of all rows."""
    left_out: dict[str, list[str]] = {}
    for operator, why in LEFT_OUT.items():
        left_out.setdefault(why, []).append(operator)
    return "\n".join(
        (
            "# Operators",
            "",
            INTRODUCTION,
            "",
            said,
            "",
            summary(rows),
            "",
            HEAD,
            *(one.line() for one in rows),
            "",
            "## Left out",
            "",
            *(f"- {', '.join(f'`{one}`' for one in names)}: {why}" for why, names in left_out.items()),
            "",
        )
    )


def _kept(path: Path | None) -> dict[tuple[str, Shape], Row]:
    if path is None or not path.exists():
        return {}
    found: list[Mapping[str, object]] = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**{**one, "shape": tuple(one["shape"])}) for one in found]  # type: ignore[arg-type]
    return {(one.operator, one.shape): one for one in rows}


def main() -> None:
    """Print the table, what is behind the peer, and the median time of compiling."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", default=sorted(CASES))
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--rows", type=Path, help="a file of JSON to which rows are added")
    parser.add_argument("--page", type=Path, help="write the page here")
    options = parser.parse_args()
    rows = _kept(options.rows)
    roofline = measure_roofline()
    figures = ", ".join(f"{size >> 10} KiB {rate / 1e9:.0f}" for size, rate in roofline.bandwidth)
    said = f"{machine(['onnxruntime'])}; one core: {roofline.flops / 1e9:.0f} GFLOP/s; GB/s of {figures}"
    print(said, HEAD, sep="\n\n")
    for operator in options.operators:
        for shape in CASES[operator][1]:
            found = row(operator, shape, options.seconds, roofline, against=installed("onnxruntime"))
            rows[operator, shape] = found
            print(found.line(), flush=True)
    ordered = [rows[key] for key in sorted(rows)]
    if options.rows:
        files.write(options.rows, json.dumps([asdict(one) for one in ordered]), "the rows")
    if options.page:
        files.write(options.page, page(ordered, said), "the page")
    print(f"\n{summary(ordered)}")


if __name__ == "__main__":
    main()
