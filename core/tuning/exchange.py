"""Tunings as text: a JSON file that one machine exports and another one merges; provenance stands in each row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from graft.core.schedule.parameters import from_json, to_json
from graft.core.tuning.tunings import KINDS, Row, Tuning, fault_of
from graft.errors import TuningError
from graft.runtime.system.files import write
from graft.runtime.system.json_text import parse_json

VERSION = 1


def facts(row: Row) -> dict[str, object]:
    """Return a row as JSON values."""
    tuning = row.tuning
    values = (
        row.workload, row.machine, row.compiler, tuning.label, json.loads(to_json(tuning.parameters)), tuning.seconds,
        tuning.untuned, tuning.stage, tuning.form, tuning.made,
    )  # fmt: skip
    return dict(zip(KINDS, values, strict=True))


def write_rows(rows: Iterable[Row], path: Path) -> int:
    """Write a file of rows; return how many."""
    written = [facts(row) for row in rows]
    write(path, json.dumps({"tunings": VERSION, "rows": written}, indent=1) + "\n", "the tunings", TuningError)
    return len(written)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file; raise TuningError if it cannot be read, or a row is none."""
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
        version = data.get("tunings") if isinstance(data, dict) else None
        if version != VERSION:
            raise ValueError(f"it says that it is of version {version}, and this Graft reads {VERSION}")
        rows = data.get("rows", [])
        if not isinstance(rows, list):
            raise ValueError(f"its rows are no list, but {type(rows).__name__}")
        return [_row(number, one) for number, one in enumerate(rows)]
    except (OSError, ValueError, TuningError) as error:
        raise TuningError(f"the tunings '{path}' cannot be read: {error}", path=str(path)) from error


def _row(number: int, data: object) -> Row:
    given = data if isinstance(data, dict) else {}
    if fault := fault_of(given):
        raise ValueError(f"row {number} {fault}")
    workload, machine, compiler, label, parameters, *others = (given[name] for name in KINDS)
    return Row(workload, machine, compiler, Tuning(label, from_json(json.dumps(parameters)), *others))
