"""Many random models one after another, what was found with them, and each finding as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from graft.runtime.system import files
from graft.testkit.models.check import Finding, check, undrawn, way_of
from graft.testkit.models.model import RandomModel, random_model
from graft.testkit.models.options import Options
from graft.testkit.models.shrink import shrunk


@dataclass(slots=True)
class Report:
    """How many models there were, by operator and by way, and what was found."""

    options: Options
    models: int = 0
    seconds: float = 0.0
    operators: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    traits: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, model: RandomModel) -> None:
        """Count a model."""
        self.models += 1
        self.operators.update(set(model.operators))
        kinds = {array.dtype.name for array in model.arrays.values()}
        self.traits.update(kinds | {f"opset {model.opset}"})
        self.traits["symbolic"] += bool(model.symbols)
        self.traits["special values"] += model.special
        self.traits["empty tensors"] += any(array.size == 0 for array in model.arrays.values())
        self.traits["scalars"] += any(array.ndim == 0 for array in model.arrays.values())
        self.traits["control flow"] += any(name in ("If", "Loop", "Scan") for name in model.operators)

    def __str__(self) -> str:
        rate = self.models / self.seconds if self.seconds else 0.0
        missing = undrawn(frozenset(self.operators))
        lines = [
            f"{self.models} models ({self.options}) in {self.seconds:.0f} s, {rate:.1f} a second",
            f"ways: {_counts(self.ways)}",
            f"with: {_counts(self.traits)}",
            f"models with an operator: {_counts(self.operators)}",
            *([f"operators of the table in none: {', '.join(sorted(missing))}"] if missing else []),
            f"found: {_counts(Counter(one.kind for one in self.findings)) or 'nothing'}",
            *(str(one) for one in self.findings),
        ]
        return "\n".join(lines)


def run_models(
    seeds: Iterable[int],
    wanted: Sequence[str] = (),
    options: Options | None = None,
    *,
    out: Path | None = None,
    seconds: float | None = None,
    tell: Callable[[str], object] = lambda text: None,
) -> Report:
    """Check the models of seeds in the ways wanted, or each in one that its seed draws, for at most ``seconds``."""
    report, started = Report(options or Options()), perf_counter()
    for seed in seeds:
        if seconds is not None and perf_counter() - started > seconds:
            break
        model = random_model(seed, report.options)
        report.add(model)
        for way in wanted or (way_of(seed),):
            report.ways[way] += 1
            if (finding := check(model, way)) is None:
                continue
            report.findings.append(finding)
            tell(str(finding)[:500])
            if out is not None:
                tell(write(smallest(model, finding), finding, out))
    report.seconds = perf_counter() - started
    return report


def smallest(model: RandomModel, finding: Finding) -> RandomModel:
    """Return the smallest model that shows a finding of the same kind."""

    def fails(candidate: RandomModel) -> bool:
        found = check(candidate, finding.way)
        return found is not None and found.kind == finding.kind

    return shrunk(model, fails)


def write(model: RandomModel, finding: Finding, folder: Path) -> str:
    """Write a model, its inputs and its expected outputs; return two lines that show the finding again."""
    stem = files.make_folder(folder, "what was found") / f"{finding.seed}_{finding.way.strip('-')}"
    files.write(f"{stem}.onnx", model.proto.SerializeToString(), "a model")
    arrays = {f"in:{name}": array for name, array in model.feeds.items()}
    arrays |= {f"out:{name}": array for name, array in model.expected.items()}
    with files.writing(f"{stem}.npz", "the arrays of a model") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    return (
        f"python -m graft.testkit.models --seed {finding.seed} --count 1 --backends={finding.way}\n"
        f"{stem}.onnx: {len(model.nodes)} nodes, {', '.join(model.operators)}; inputs and outputs in {stem}.npz"
    )


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common() if count)
