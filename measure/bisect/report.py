"""What a bisection found, as text, JSON and files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graft.measure.bisect.trial import Failure
from graft.measure.parts import Part
from graft.measure.verification import BadRegion
from graft.runtime.inputs import file_name
from graft.runtime.system.files import make_folder, write, writing

MODEL_FILE, REPORT_FILE, SCRIPT_FILE = "minimal.onnx", "report.json", "reproduce.sh"


@dataclass(frozen=True, slots=True)
class Cure:
    """An optimisation or a pass without which the smallest part is right."""

    name: str
    plugin: str = ""
    """The plugin whose pass it is, "" for Graft's own."""
    whole: bool | None = None
    """Whether the whole model is right without it too; None where the time did not suffice to try."""

    def __str__(self) -> str:
        owner = f" of plugin '{self.plugin}'" if self.plugin else ""
        whole = {True: "", False: ", but not the whole model", None: ", the whole model was not tried"}[self.whole]
        return f"right with --switch-off {self.name}{owner}{whole}"


@dataclass(frozen=True, slots=True)
class BisectReport:
    """The outcome of `bisect`; of a model that is right only the counts."""

    failure: Failure | None
    """How the whole model fails; None if nothing is wrong."""
    total: int
    """How many nodes the model has."""
    trials: int
    """How many models were compiled and run."""
    seconds: float
    finished: bool = True
    """Whether all was tried that was to be; else the time ran out."""
    region: BadRegion | None = None
    """The first bad region of the whole model, where its result is wrong and a region is at fault."""
    nodes: tuple[str, ...] = ()
    """The nodes of the smallest part that still fails."""
    operators: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    """Where the nodes of the smallest part go, "" where that is not known."""
    minimal: Failure | None = None
    """How the smallest part fails."""
    cures: tuple[Cure, ...] = ()
    folder: str = ""
    reproduction: tuple[str, ...] = ()
    """Two lines for a shell."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the model."""
        return self.failure is None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {**asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        if self.failure is None:
            return f"nothing is wrong: all outputs of {self.total} nodes are within the tolerance"
        assert self.minimal is not None
        rows = zip(self.nodes, self.operators, self.backends, strict=True)
        lines = [f"the model fails: {self.failure.text}"]
        lines += [] if self.region is None else [f"first bad: {self.region}"]
        lines += [f"smallest part that fails: {len(self.nodes)} of {self.total} nodes; {self.minimal.text}"]
        lines += [
            f"  {operator} (node '{name}'){f': {backend}' if backend else ''}" for name, operator, backend in rows
        ]
        lines += map(str, self.cures) if self.cures else ["no optimisation and no pass makes it right"]
        lines += [] if self.finished else [f"the time ran out after {self.trials} trials: more of it may find less"]
        return "\n".join([*lines, *self.reproduction])


def write_files(part: Part, report: BisectReport, folder: Path, options: Sequence[str]) -> BisectReport:
    """Write a part with its inputs, a script and a report; return the report with the lines of the script.

    ``options`` are those with which `graft verify` meets the failure. Raises GraftError for what cannot be written.
    """
    make_folder(folder, "reproduction")
    write(folder / MODEL_FILE, part.model.SerializeToString(deterministic=True), "model")
    words = ["graft", "verify", MODEL_FILE, *options]
    for number, (name, array) in enumerate(part.inputs.items()):
        path = f"{number}_{file_name(name, number)}.npy"
        with writing(folder / path, "input") as file:
            np.save(file, array, allow_pickle=False)
        words += ["--input", f"{name}=@{path}"]
    lines = (shlex.join(["cd", str(folder.absolute())]), shlex.join(words))
    write(folder / SCRIPT_FILE, "\n".join([*lines, ""]), "script")
    report = replace(report, folder=str(folder), reproduction=lines)
    write(folder / REPORT_FILE, json.dumps(report.to_json(), indent=1), "report")
    return report
