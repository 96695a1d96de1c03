"""Artifacts that are damaged on purpose: in their bytes, or in what their manifest says."""

from __future__ import annotations

import copy
import io
import json
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import graft.compiler.api as api
from graft.runtime.artifact import write_archive
from graft.testkit.hostile.models import NUMBERS, damaged_bytes
from graft.testkit.models.model import random_model
from graft.testkit.models.options import Options
from graft.testkit.models.source import Source

VALUES: tuple[Any, ...] = (*NUMBERS, 0.5, None, True, "", "x", "main", [], [0], [-1], {}, {"a": 1})
MODELS = 4


@cache
def artifact(number: int) -> bytes:
    """Return a small artifact, of modules that hold no native code: what is wrong with it may be loaded safely."""
    model = random_model(number, Options(nodes=(3, 5), symbolic=0.5, control=0.8, special=0, older=0))
    program = api.compile(model.proto, ["reference"], threads=1, cache=False, tuned=False)
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "a.graft")
        return (Path(folder) / "a.graft").read_bytes()


def damaged_artifact(source: Source) -> bytes:
    """Return the bytes of an artifact after changes, mostly of a manifest whose archive is whole."""
    raw = artifact(source.below(MODELS))
    if source.below(4) == 0:
        return damaged_bytes(source, raw)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(members["manifest.json"])
    for _ in range(source.integers(1, 4)):
        change_manifest(source, facts)
    file = io.BytesIO()
    write_archive(file, {**members, "manifest.json": json.dumps(facts).encode()})
    return file.getvalue()


def change_manifest(source: Source, facts: dict[str, Any]) -> None:
    """Change, drop, double or shift one thing anywhere in a manifest."""
    places: list[tuple[Any, Any]] = []
    _find_places(facts, places)
    container, key = places[source.below(len(places))]
    match source.below(4):
        case 0:
            container[key] = copy.deepcopy(VALUES[source.below(len(VALUES))])
        case 1:
            del container[key]
        case 2 if isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        case _ if isinstance(container[key], int):
            container[key] += (-64, -1, 1, 64, 4096)[source.below(5)]


def _find_places(value: Any, found: list[tuple[Any, Any]]) -> None:
    for key in value if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _find_places(value[key], found)
