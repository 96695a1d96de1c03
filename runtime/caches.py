"""Growing caches as an artifact tells of them: which input is which output with more rows behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graft.runtime.procedure import Procedure


@dataclass(frozen=True, slots=True)
class Cache:
    """An input and the output that is it with more rows behind it along ``axis``.

    ``copied`` says why the rows that were there are copied nevertheless; "" where the output may lie in the input's
    memory.
    """

    input: str
    output: str
    axis: int
    copied: str = ""


def caches_of(entry: Procedure, metadata: Mapping[str, Any]) -> tuple[Cache, ...]:
    """Return a program's caches in the order of its inputs: what its entry appends to, and what its metadata add."""
    found: dict[str, Cache] = {}
    for row in _rows(metadata):
        found[row.input] = row
    for call in entry.calls:
        if call.kind == "append":
            past, present = entry.tensors[call.inputs[0]].name, entry.tensors[call.outputs[0]].name
            found[past] = Cache(past, present, call.axis)
    names = [entry.tensors[index].name for index in entry.inputs]
    return tuple(found[name] for name in names if name in found)


def caches_to_json(caches: Sequence[Cache]) -> list[dict[str, Any]]:
    """Return the rows of an artifact's metadata."""
    return [asdict(cache) for cache in caches]


def _rows(metadata: Mapping[str, Any]) -> list[Cache]:
    """The caches in an artifact's metadata; what is none there is left out, for a program runs without them."""
    rows = metadata.get("caches")
    kinds = {"input": str, "output": str, "axis": int, "copied": str}
    return [
        Cache(**row)
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and row.keys() == kinds.keys() and all(isinstance(row[k], t) for k, t in kinds.items())
    ]
