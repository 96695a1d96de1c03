"""The table of the architectures: right or wrong against ONNX Runtime at three bindings, and what runs in `reference`.

    python -m tests.end_to_end.architectures [KIND/NAME ...] [--models DIR] [--plan] [--markdown]

Exports are kept in ``--models``; those that cannot be built or exported are counted, and told with ``--verbose``. With
``--plan`` nothing is compiled: the table says where operators would run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

import graft
from graft.partition.plan import Plan
from tests.end_to_end.architectures.exports import all_names, answers_of_torch, export
from tests.end_to_end.architectures.inputs import BINDINGS, Input

REFERENCE = "reference"
TOLERANCE = 2e-3
"""Relative to the largest number of an output: float32, random weights."""


@dataclass
class Row:
    """What became of one model."""

    name: str
    operators: int = 0
    reference: Counter[str] = field(default_factory=Counter)
    """Operators there, by type and by why no other backend takes them."""
    outcome: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        told = "; ".join(f"{count} {why}" for why, count in self.reference.most_common(3))
        counts = f"{self.operators:5} {sum(self.reference.values()):4} {self.seconds:6.1f} s"
        return f"{self.name:34} {counts}  {self.outcome}  {told}"


def exported(name: str, folder: Path) -> tuple[Path, list[Input]] | str:
    """Return the ONNX model and its inputs, kept in a folder; the reason where there is none."""
    path = folder / f"{name.replace('/', '__')}.onnx"
    facts = path.with_suffix(".json")
    if not facts.exists():
        try:
            found: dict[str, object] = {"inputs": [[i.name, i.kind, i.shape, i.high] for i in export(name, path)]}
        except Exception as error:  # of any library on the way: it is told
            found = {"error": f"{type(error).__name__}: {str(error)[-300:]}"}
        facts.write_text(json.dumps(found))
    found = json.loads(facts.read_text())
    rows = found.get("inputs")
    if not isinstance(rows, list):
        return str(found.get("error"))
    return path, [Input(row[0], row[1], tuple(row[2]), row[3]) for row in rows]


def tried(name: str, path: Path, inputs: Sequence[Input], only_plan: bool) -> Row:
    """Return the row of a model."""
    row, started = Row(name), perf_counter()
    try:
        program = None if only_plan else graft.compile(str(path), cache=False)
        plan = graft.plan(str(path)) if program is None else Plan.of(program)
        row.operators = len(plan.placements)
        for one in plan.placements:
            if one.backend == REFERENCE:
                why = one.reasons.get("llvm")
                row.reference[f"{one.op_type}: {str(why)[:160]}"] += 1
        row.outcome = "planned" if program is None else compared(program, name, path, inputs)
    except Exception as error:  # of Graft: that is what the table is for
        row.outcome = f"FAILED {type(error).__name__}: {str(error)[:300]}"
    row.seconds = perf_counter() - started
    return row


def compared(program: graft.Program, name: str, path: Path, inputs: Sequence[Input]) -> str:
    """Compare with ONNX Runtime at every binding, with PyTorch where that refuses it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names, worst, count, says = {one.name for one in session.get_inputs()}, 0.0, 0, False
    for binding in BINDINGS:
        arrays = [one.drawn(binding, number) for number, one in enumerate(inputs)]
        feeds = {one.name: array for one, array in zip(inputs, arrays, strict=True) if one.name in names}
        try:
            expected = session.run(None, feeds)
        except Exception:  # the export is of other shapes alone, or ONNX Runtime is at fault
            expected = answers_of_torch(name, arrays)
        if expected is None:
            continue
        count += 1
        for ours, theirs in zip(program.run(feeds).values(), expected, strict=True):
            if ours.shape != theirs.shape:
                return f"WRONG shape {ours.shape}, not {theirs.shape}, at {dict(binding)}"
            scale = max(1e-30, float(np.max(np.abs(theirs), initial=0.0)))
            difference = float(np.max(np.abs(ours - theirs), initial=0.0)) / scale
            worst = max(worst, np.inf if np.isnan(difference) else difference)
            says |= theirs.size < 2 or bool(np.ptp(theirs) > 0)
    verdict = "WRONG" if worst > TOLERANCE else "right" if says else "CONSTANT, which says nothing:"
    return f"{verdict} {worst:.1e} at {count} bindings"


def main(arguments: Sequence[str]) -> int:
    """Print the table and its totals; 1 if a model is wrong or fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", help="such as decoder/granite; all by default")
    parser.add_argument("--models", type=Path, default=Path("architectures"), help="the folder of the exports")
    parser.add_argument("--plan", action="store_true", help="compile nothing")
    parser.add_argument("--verbose", action="store_true", help="tell why models cannot be built or exported")
    options = parser.parse_args(arguments)
    options.models.mkdir(parents=True, exist_ok=True)
    rows, missing = [], 0
    for name in options.names or all_names():
        found = exported(name, options.models)
        if isinstance(found, str):
            missing += 1
            if options.verbose:
                print(f"{name:34} not exported: {found}", flush=True)
            continue
        rows.append(tried(name, *found, options.plan))
        print(rows[-1], flush=True)
    bad = [row for row in rows if row.outcome.startswith(("WRONG", "FAILED", "CONSTANT"))]
    held = [row for row in rows if row.reference]
    print(
        f"{len(rows)} models, {len(bad)} wrong or failed, {len(held)} with operators in reference "
        f"({sum(sum(row.reference.values()) for row in held)}), {missing} not exported"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.modules["torchvision"] = None  # type: ignore[assignment]  # of another version than torch, it fails on import
    sys.exit(main(sys.argv[1:]))
