"""The default placement beside each single backend and the user's order, in turns in one run.

    python -m benchmarks.placement [MODEL ...] [--threads 1,2] [--backends onednn,llvm] [--seconds 4]
        [--place measured]

Prints a Markdown table: the median latency of the default (no backends named) in milliseconds, and beside it what the
default takes relative to each rival, the median round by round. ``default again`` is the same program, compiled anew:
what it differs from 1 is noise. A backend stands alone where it takes every operator, else with those after it for
what it leaves. ``of best`` is the largest of these ratios to a rival of other code; ``same code`` names those whose
calls and modules are the default's, byte for byte, so that what their ratio differs from 1 is noise, too. ``plan s`` is
the time of placing, in which ``--place measured`` measures what its database lacks; ``vendor ops`` the operators that
the default gives to others than the built-in compiler.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import perf_counter

import graft
from benchmarks.peers import machine
from benchmarks.zoo import LIGHT, model
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import measure, program_run
from graft.partition.policy import PlacementMode
from graft.runtime.procedure import Module
from graft.runtime.program import Program

MODELS = (
    *(f"light_{name}" for name in LIGHT), "bert_base", "gpt2", "vit_base", "mobilenet_v2", "convnext_tiny", "lstm",
    "swin_tiny", "distilbert", "whisper_tiny_encoder", "llama", "llama_opset23",
)  # fmt: skip
TURNS = 9
AGAIN = "default again"


def rivals(backends: Sequence[str]) -> dict[str, list[str]]:
    """Return the choices to compare with: every backend with those after it, and the last one by itself."""
    return {",".join(backends[start:]): list(backends[start:]) for start in range(len(backends))}


def same_code(one: Program, other: Program) -> bool:
    """Whether two programs make the same calls of the same modules; how they came about may differ."""
    mine, theirs = one.description, other.description
    return mine.procedures == theirs.procedures and [*map(_code, mine.modules)] == [*map(_code, theirs.modules)]


def _code(module: Module) -> tuple[object, ...]:
    constants = {name: (array.dtype, array.shape, array.tobytes()) for name, array in module.constants.items()}
    return module.name, module.kind, module.functions, module.data, constants


def row(name: str, threads: int, backends: Sequence[str], seconds: float, place: PlacementMode) -> tuple[str, float]:
    """Measure one model; return its row and the largest ratio to a rival."""
    source = model(name)
    feeds = sample_inputs(source)
    started = perf_counter()
    plan = graft.plan(source, threads=threads, place=place)
    planned = perf_counter() - started
    programs = {title: graft.compile(source, threads=threads, plan=plan) for title in ("default", AGAIN)}
    programs |= {title: graft.compile(source, names, threads=threads) for title, names in rivals(backends).items()}
    rows = measure({title: program_run(one, feeds) for title, one in programs.items()}, seconds, minimum=TURNS)
    ratios = {one.name: one.ratio for one in rows[1:]}
    same = [title for title, one in programs.items() if title in ratios and same_code(programs["default"], one)]
    worst = max([ratio for title, ratio in ratios.items() if title not in (AGAIN, *same)], default=1.0)
    offered = sum(placement.backend not in ("", backends[-1]) for placement in plan.placements)
    twins = ", ".join(title for title in same if title != AGAIN)
    measured = [f"{ratio:.2f}" for ratio in (*ratios.values(), worst)]
    cells = [name, str(threads), f"{rows[0].median_ms:.2f}", *measured, twins, str(offered), f"{planned:.2f}"]
    return f"| {' | '.join(cells)} |", worst


def main() -> None:
    """Print the table and how many models the default does not lose on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--threads", default=[1, 2], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--backends", default=["onednn", "llvm"], type=lambda text: text.split(","))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--place", choices=("auto", "measured"), default="auto")
    options = parser.parse_args()
    titles = (AGAIN, *rivals(options.backends))
    print(machine(()), end="\n\n")
    columns = ("model", "threads", "default ms", *titles, "of best", "same code", "vendor ops", "plan s")
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")
    worst: list[float] = []
    for name in options.models:
        for threads in options.threads:
            line, ratio = row(name, threads, options.backends, options.seconds, options.place)
            worst.append(ratio)
            print(line, flush=True)
    within = sum(ratio <= 1.02 for ratio in worst)
    print(f"\nwithin 1.02x of the best of the others: {within} of {len(worst)} rows")


if __name__ == "__main__":
    sys.exit(main())
