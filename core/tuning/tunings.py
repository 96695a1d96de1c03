"""The outcomes of tuning, kept in a database file between runs.

A row belongs to one workload, machine and compiler: what was measured elsewhere, or for other code, is never used.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graft.core.machine.target import Target
from graft.core.schedule.parameters import Parameters, from_json, is_void, to_json
from graft.core.tuning.database import Database
from graft.errors import TuningError

COLUMNS = """
    workload TEXT, machine TEXT, compiler TEXT, label TEXT NOT NULL, parameters TEXT NOT NULL, seconds REAL NOT NULL,
    untuned REAL NOT NULL, stage INTEGER NOT NULL, PRIMARY KEY (workload, machine, compiler)
"""
ADDED = ("form TEXT NOT NULL DEFAULT ''", "made TEXT NOT NULL DEFAULT ''")
KINDS: Mapping[str, type | tuple[type, ...]] = {
    "workload": str, "machine": str, "compiler": str, "label": str, "parameters": (dict, str, type(None)),
    "seconds": (int, float), "untuned": (int, float), "stage": int, "form": str, "made": str,
}  # fmt: skip
"""What a row has, in the order of the columns."""
MOST = 2**53
"""The largest number that a row has."""
_ROWS = f"SELECT {', '.join(KINDS)} FROM tunings"
_KEEP = f"""
    INSERT INTO tunings ({", ".join(KINDS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET label = excluded.label, parameters = excluded.parameters, seconds = excluded.seconds,
    untuned = excluded.untuned, stage = excluded.stage, form = excluded.form, made = excluded.made
    WHERE excluded.stage >= stage
"""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is known of a workload: the best parameters so far, None where the schedule's own choice was not beaten.

    ``seconds`` and ``untuned`` are the times of these parameters and of the schedule's own choice, in one race; the
    next candidates to measure are those of ``stage``. ``form`` says what the kernel has in common with others
    (`graft.core.tuning.transfer`), ``made`` when and by which Graft it was measured.
    """

    label: str
    parameters: Parameters | None
    seconds: float
    untuned: float
    stage: int
    form: str = ""
    made: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A tuning and what it belongs to."""

    workload: str
    machine: str
    compiler: str
    tuning: Tuning


class Tunings:
    """The tunings of one machine and compiler, in a file that several processes may use at a time (`Database`)."""

    def __init__(self, path: Path, machine: str = "", compiler: str = "") -> None:
        self.path, self.machine, self.compiler = path, machine, compiler
        self._database = Database(path, "tunings", COLUMNS, "tuned parameters", ADDED)

    def known(self) -> dict[str, Tuning]:
        """Return the tunings by workload."""
        mine = f"{_ROWS} WHERE machine = ? AND compiler = ?"
        return {row.workload: row.tuning for row in self._rows(mine, self.machine, self.compiler)}

    def check(self) -> None:
        """Raise DatabaseError if there is a file that cannot be used."""
        self._database.rows("SELECT count(*) FROM tunings")

    def keep(self, workload: str, tuning: Tuning) -> None:
        """Remember a tuning in place of one that has come less far."""
        self.merge([Row(workload, self.machine, self.compiler, tuning)])

    def merge(self, rows: Iterable[Row]) -> int:
        """Remember rows of any machine and compiler, but for those of which more is known; return how many."""
        return sum(
            self._database.write(
                _KEEP, row.workload, row.machine, row.compiler, one.label, to_json(one.parameters), one.seconds,
                one.untuned, one.stage, one.form, one.made,
            )
            for row in rows
            for one in [row.tuning]
        )  # fmt: skip

    def everything(self) -> list[Row]:
        """Return all rows, those of other machines and compilers too."""
        return self._rows(f"{_ROWS} ORDER BY machine, compiler, label, workload")

    def clear(self) -> int:
        """Forget all tunings, of all machines and compilers; return how many there were."""
        return self._database.clear()

    def _rows(self, question: str, *values: object) -> list[Row]:
        rows = []
        for workload, machine, compiler, label, text, *others in self._database.rows(question, *values):
            given = dict(zip(KINDS, (workload, machine, compiler, label, text, *others), strict=True))
            if fault := fault_of(given):
                raise self._database.refusal(f"the row of '{workload}' {fault}")
            if is_void(text):
                continue
            try:
                tuning = Tuning(label, from_json(text), *others)
            except TuningError as error:
                raise self._database.refusal(str(error)) from error
            rows.append(Row(workload, machine, compiler, tuning))
        return rows


def fault_of(row: Mapping[str, object]) -> str:
    """Return what is wrong with the facts of a row, "" if nothing is."""
    for name, kind in KINDS.items():
        if not isinstance(row.get(name), kind) or isinstance(row[name], bool):
            return f"has no {name}, or one of another type"
    for name in ("seconds", "untuned", "stage"):
        value = row[name]
        if not (isinstance(value, int | float) and 0 <= value < math.inf):
            return f"has {name} = {value}, which must be a number from 0 on"
        if value > MOST:
            return f"has a {name} beyond {MOST}"
    broken = next((name for name, value in row.items() if isinstance(value, str) and not _is_text(value)), None)
    return "" if broken is None else f"has a half of a surrogate pair in {broken}"


def _is_text(value: str) -> bool:
    """Whether a text can be written: JSON has halves of pairs of code units, and no file has them."""
    try:
        return bool(value.encode()) or not value
    except UnicodeEncodeError:
        return False


def machine_of(target: Target, threads: int) -> str:
    """Return what measured times depend on besides kernel and compiler, as one line."""
    without = "".join(f" without {name}" for name in sorted(target.without))
    precision = "" if target.precision == "float32" else f" in {target.precision}"
    return f"{target.arch} {target.cpu} {'+'.join(sorted(target.features))} threads={threads}{without}{precision}"


def workload_key(structure: str) -> str:
    """Return the key of a kernel's structure: its statements, shapes and element types."""
    return hashlib.sha256(structure.encode()).hexdigest()
