"""Derivatives of ONNX's own cases on drawn inputs, beside differences: every operator, attribute and shape of them.

    python -m tests.core.differentiation.random_cases [OPERATOR ...] [--draws 150] [--seed 0] [--log FILE]

With a log, each case is a line of it once it is done, and those that are there are not run again.

A draw has the elements of each input in another order, each up to a tenth smaller, so what an operator takes it takes
again, and a direction. Draws beside a kink, where differences of two widths disagree, and those without a finite loss
are counted by themselves.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import graft
from graft.errors import GraftError
from graft.runtime.program import Program
from tests.core.differentiation.differences import BOUNDS, STEPS, Case, cases, off_kinks, with_gradients
from tests.core.differentiation.test_cases import OPERATORS_WITH, of

SMOOTH = 0.1
"""How far differences of two widths may be apart, as a share of the bound, where there is no kink between."""

KINK = 0.75
"""What is left, at half the width, of how far the slopes of both sides are apart: half of it without a kink."""


@dataclass(slots=True)
class Count:
    """Draws of a case: compared, left out, wrong; and the largest error, as a share of the bound."""

    compared: int = 0
    left_out: int = 0
    wrong: int = 0
    worst: float = 0.0


def drawn(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return inputs of a case in another order, and smaller."""
    feeds = dict(case.feeds)
    for name in case.by:
        array = rng.permutation(case.feeds[name].reshape(-1)).reshape(case.feeds[name].shape)
        array = array * rng.uniform(0.9, 1.0, array.shape)
        feeds[name] = off_kinks(array, int(rng.integers(1 << 30))).astype(case.feeds[name].dtype)
    return feeds


def compared(program: Program, feeds: Mapping[str, np.ndarray], name: str, rng: np.random.Generator) -> float | None:
    """Return how far a gradient is from a difference along a drawn direction, by its bound; None beside a kink."""
    kind = feeds[name].dtype
    way, width = rng.uniform(-1, 1, feeds[name].shape), STEPS[kind]

    def loss(side: float) -> float:
        moved = {**feeds, name: (feeds[name] + side * way).astype(kind)}
        return float(np.asarray(program.run(moved)["loss__"]))

    here, sides = loss(0), {one: (loss(one), loss(-one)) for one in (width / 2, width)}
    narrow, wide = ((right - left) / (2 * one) for one, (right, left) in sides.items())
    near, far = (abs(right + left - 2 * here) / one for one, (right, left) in sides.items())
    results = program.run(dict(feeds))
    own = np.asarray(results[f"{name}__g"], np.float64) * way
    scale = float(np.sum(np.abs(own))) + 1e-3 * abs(float(np.asarray(results["loss__"]))) + 1e-6
    if not np.isfinite([narrow, wide, scale]).all() or abs(narrow - wide) > SMOOTH * scale:
        return None
    apart = abs(float(np.sum(own)) - (4 * narrow - wide) / 3)
    error, straight = apart / scale / BOUNDS[kind], abs(narrow - wide) / scale / BOUNDS[kind]
    # Slopes of both sides that differ as much at half the width: a kink right beside, which explains half of that.
    is_kink = near > KINK * far and apart <= near
    return None if error > 1 and (straight > 1 / SMOOTH or is_kink) else error


def run(case: Case, draws: int, seed: int) -> Count:
    """Compare a case on drawn inputs; raise what compiling it raises."""
    by = [name for name in case.by if not (case.operator == "RotaryEmbedding" and "cache" in name)]
    program = graft.compile(with_gradients(case.model, case.results, by), ["llvm", "reference"], cache=False)
    count, rng = Count(), np.random.default_rng(seed)
    for number in range(draws):
        feeds = drawn(case, rng)
        try:
            error = compared(program, feeds, by[number % len(by)], rng)
        except GraftError:  # another order is not always legal
            error = None
        if error is None:
            count.left_out += 1
            continue
        count.compared += 1
        count.worst = max(count.worst, float(error))
        count.wrong += int(error > 1)
    return count


def logged(log: Path | None) -> dict[str, Count]:
    """Return the counts of a log by draws, seed and case."""
    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    return {name: Count(**count) for line in lines for name, count in json.loads(line).items()}


def main() -> None:
    """Print what is wrong of each case, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", default=[one for one in OPERATORS_WITH if one in cases()])
    parser.add_argument("--draws", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    done, counts = logged(options.log), list[Count]()
    for case in (case for operator in options.operators for case in of(operator)):
        name = f"{case.name} {options.draws} {options.seed}"
        if name not in done:
            done[name] = run(case, options.draws, options.seed)
            if options.log is not None:
                with options.log.open("a") as file:
                    file.write(json.dumps({name: asdict(done[name])}) + "\n")
        count = done[name]
        counts.append(count)
        if count.wrong or not count.compared:
            print(f"{case.name}: {count.wrong} of {count.compared} wrong, {count.left_out} left out", flush=True)
    compared, left, wrong = (sum(getattr(one, key) for one in counts) for key in ("compared", "left_out", "wrong"))
    worst = max(one.worst for one in counts)
    print(f"{len(counts)} models, {compared} draws: {wrong} wrong, {left} left out; largest of bound {worst:.2g}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
