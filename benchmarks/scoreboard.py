"""The scoreboard of ONNX's own test suite: what Graft computes of it, natively or not, beside ONNX Runtime.

    python -m benchmarks.scoreboard                  # writes docs/coverage.md
    python -m benchmarks.scoreboard --only gridsample

Every case runs with Graft's default backends, with `llvm` alone and in ONNX Runtime, by one comparison (ONNX's own).
Workers are processes, for a case may end one; the next goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx

from benchmarks.data.onnx_suite import Case, all_cases, check, operator_of

PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"
WAYS = ("graft", "llvm", "onnxruntime")
NEWEST_IR = 13
"""The newest IR version that ONNX Runtime 1.31 reads."""
STATUSES = ("native", "mixed", "reference", "failed")
Row = dict[str, str]


Prepare = Callable[[onnx.ModelProto], tuple[Callable[..., Any], str, str]]
"""Gives what runs a model, how it does, and why not natively."""


def _graft(backends: Sequence[str] | None) -> Prepare:
    def prepare(model: onnx.ModelProto) -> tuple[Callable[..., Any], str, str]:
        import graft.onnx_backend

        prepared = graft.onnx_backend.prepare(model, backends=backends, threads=1)
        kinds = {module.kind for module in prepared.program.description.modules}
        status = "native" if "reference" not in kinds else "reference" if kinds == {"reference"} else "mixed"
        return prepared.run, status, "" if status == "native" else _why_reference(model)

    return prepare


def _why_reference(model: onnx.ModelProto) -> str:
    """Return the first operator that is left to `reference`, and why the built-in compiler or the kernels leave it."""
    import graft

    left = [row for row in graft.plan(model).placements if row.backend == "reference"]
    if not left:
        return "what is compiled is placed again"
    reasons = left[0].reasons
    found = next((reasons[name] for name in ("llvm", "irregular") if reasons[name].code != "no-pattern"), None)
    return f"{left[0].op_type}: {(reasons['irregular'] if found is None else found).text}"


def _onnxruntime(model: onnx.ModelProto) -> tuple[Callable[..., Any], str, str]:
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # the suite has operators of opsets to come
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    model = onnx.ModelProto.FromString(model.SerializeToString())
    model.ir_version = min(model.ir_version, NEWEST_IR)  # the suite's files of a newer one use nothing of it
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return (lambda inputs: session.run(None, dict(zip(names, inputs, strict=False)))), "native", ""


PREPARE = {"graft": _graft(None), "llvm": _graft(["llvm"]), "onnxruntime": _onnxruntime}


def status_of(case: Case, way: str) -> tuple[str, str]:
    """Return how a case is computed, and why not natively."""
    try:
        model = case.model
        run, status, why = PREPARE[way](model)
        check(case, run, case.data(model))
    except Exception as error:  # whatever it is, the case failed
        return "failed", f"{type(error).__name__}: {error}"[:500]
    return status, why


def _work(names: Sequence[str]) -> None:
    """Print a line of JSON for each case: before it runs, and for each way."""
    warnings.simplefilter("ignore")
    for name in names:
        for way in WAYS:
            print(json.dumps({"name": name, "way": way, "status": "failed", "why": "the process ended"}), flush=True)
            status, why = status_of(all_cases()[name], way)
            print(json.dumps({"name": name, "way": way, "status": status, "why": why}), flush=True)


def _run(names: Sequence[str]) -> list[Row]:
    """Run cases in a process of its own, and in another what one that ended has left."""
    rows: dict[tuple[str, str], Row] = {}
    left = list(names)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder}
            command = [sys.executable, "-m", "benchmarks.scoreboard", "--work"]
            done = subprocess.run(command, input="\n".join(left), capture_output=True, text=True, env=environment)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        rows |= {(row["name"], row["way"]): row for row in found}
        if not found:
            raise RuntimeError(done.stderr)
        left = left[left.index(found[-1]["name"]) + 1 :]
    return list(rows.values())


def measure(names: Sequence[str], workers: int) -> list[Row]:
    """Run cases in several processes."""
    with ThreadPoolExecutor(workers) as pool:
        return [row for rows in pool.map(_run, [names[number::workers] for number in range(workers)]) for row in rows]


# ---- The page ----


def page(rows: Iterable[Row]) -> str:
    """Return the page: totals, a line per operator, and what is not native, case by case."""
    by_way: dict[str, dict[str, Row]] = {way: {} for way in WAYS}
    for row in rows:
        by_way[row["way"]][row["name"]] = row
    graft, count = by_way["graft"], len(by_way["graft"])
    totals = Counter(row["status"] for row in graft.values())
    passed = {way: sum(row["status"] != "failed" for row in found.values()) for way, found in by_way.items()}
    lines = [
        "# Coverage", "",
        f"ONNX's own test suite (`onnx.backend.test` of onnx {onnx.__version__}: nodes, simple models, exports from "
        "PyTorch, and the nine networks), compared as ONNX does; `python -m benchmarks.scoreboard` writes this page. "
        "*Native* cases run in compiled code, *mixed* ones partly, and *reference* ones wholly, in Python. Random "
        "operators are checked by their means. ONNX Runtime's Python interface takes no arrays of bfloat16 and "
        "narrower floats: such cases count as failed there. Three cases, whose expected outputs are themselves off by "
        "more than the case tolerates or by nearly as much, are compared with the exact result where they miss these "
        "(`benchmarks/data/exact_results.py` says how); by the suite's own outputs 2,030 pass: `test_dft_inverse` and "
        "`test_dft_inverse_opset19` expect what float32 sums leave of a 0 (up to 1.5e-6, where 1e-7 is tolerated, so "
        "that the exact result fails as well), and `test_attention_4d_causal_fp16_expanded` what is rounded to float16 "
        "after every step.", "",
        "| | passed | native | mixed | reference | failed |", "|---|--:|--:|--:|--:|--:|",
        f"| Graft, default backends | {passed['graft']} | " + " | ".join(str(totals[one]) for one in STATUSES) + " |",
        f"| Graft, `llvm` alone | {passed['llvm']} | {passed['llvm']} | | | {count - passed['llvm']} |",
        f"| ONNX Runtime | {passed['onnxruntime']} | | | | {count - passed['onnxruntime']} |", "",
        f"Of {count} cases {share(totals['native'], count)} are native.", "",
        "## Operators", "",
        "Cases of an operator, its expanded functions among them; whole models stand last.", "",
        "| operator | cases | native | mixed | reference | failed | native share | ONNX Runtime |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in graft:
        groups[operator_of(name) or "(models)"].append(name)
    for operator in sorted(groups, key=lambda one: (one == "(models)", one.lower())):
        names = groups[operator]
        counts = Counter(graft[name]["status"] for name in names)
        theirs = sum(by_way["onnxruntime"][name]["status"] != "failed" for name in names)
        numbers = " | ".join(str(counts[one] or "") for one in STATUSES)
        lines.append(f"| {operator} | {len(names)} | {numbers} | {share(counts['native'], len(names))} | {theirs} |")
    lines += ["", "## What is not native", ""]
    for status in STATUSES[1:]:
        found = [name for name, row in graft.items() if row["status"] == status]
        if found:
            lines += [f"### {status.capitalize()}: {len(found)}", ""]
            lines += [f"- `{name}`{_why(graft[name])}" for name in sorted(found)] + [""]
    return "\n".join(lines).rstrip() + "\n"


def share(part: int, whole: int) -> str:
    """Return a share as a percentage."""
    return f"{100 * part / whole:.1f} %".replace(".0 %", " %")


def _why(row: Row) -> str:
    text = " ".join(row["why"].split())
    return f": {text[:200]}" if text else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suite and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names have this text; the page is printed")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="write the rows as JSON, too")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        _work(sys.stdin.read().split())
        return
    rows = measure([name for name in all_cases() if options.only in name], options.workers)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if options.only:
        print(page(rows))
    else:
        PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
