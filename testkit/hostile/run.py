"""Hostile input one after another: each is answered or refused with a GraftError, within bounds on time and memory."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time

import graft.compiler.api as api
from graft.errors import GraftError
from graft.runtime.loading import load
from graft.runtime.system.files import write
from graft.testkit.hostile.artifacts import damaged_artifact
from graft.testkit.hostile.models import damaged_model
from graft.testkit.models.source import Source

SECONDS = 10.0
"""The processor time that one input may take."""


@dataclass(slots=True)
class Report:
    """How many inputs there were of each kind, what became of them, and what was found."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def inputs(self) -> int:
        """How many inputs there were."""
        return self.outcomes.total()

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        found = "\n".join(self.findings) or "found: nothing"
        return f"{self.inputs} inputs in {self.seconds:.0f} s: {counts}\n{found}"


def plan_model(data: bytes) -> None:
    """Import a model, simplify it and place its operators, with all that is folded and inferred on the way."""
    api.plan(data, ["reference"])


def load_artifact(data: bytes) -> None:
    """Load an artifact."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.graft"
        write(path, data, "damaged artifact")
        load(path, threads=1)


TARGETS: dict[str, tuple[Callable[[Source], bytes], Callable[[bytes], None]]] = {
    "model": (damaged_model, plan_model), "artifact": (damaged_artifact, load_artifact),
}  # fmt: skip


def outcome(target: str, data: bytes) -> tuple[str, str]:
    """Return what becomes of an input, ``taken`` or ``refused`` or the name of a fault, and a text of the fault."""
    started = process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a processor lacks something that a damaged artifact names
            TARGETS[target][1](data)
        answer, text = "taken", ""
    except GraftError as error:
        answer, text = "refused", ""
        if "AssertionError" in str(error):
            answer, text = "fault", str(error)
    except Exception as error:
        answer, text = "fault", f"{type(error).__name__}: {error}"
    if (spent := process_time() - started) > SECONDS:
        return "slow", f"{spent:.0f} s"
    return answer, text


def run_hostile(
    seeds: range, targets: tuple[str, ...] = tuple(TARGETS), seconds: float | None = None, out: Path | None = None
) -> Report:
    """Try the inputs of seeds on targets, for at most ``seconds``; files of what is found go to ``out``."""
    report, started = Report(), perf_counter()
    for seed in seeds:
        if seconds is not None and perf_counter() - started > seconds:
            break
        for target in targets:
            data = TARGETS[target][0](Source(seed))
            answer, text = outcome(target, data)
            report.outcomes[f"{target} {answer}"] += 1
            if text:
                report.findings.append(f"{target}, seed {seed}: {answer}: {text}"[:600])
                if out is not None:
                    out.mkdir(parents=True, exist_ok=True)
                    write(out / f"{target}_{seed}", data, "damaged input")
    report.seconds = perf_counter() - started
    return report
