"""A small artifact of a program that runs, and copies of it with one thing changed and every checksum right."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graft.runtime.artifact import _fingerprint, save, write_archive
from graft.runtime.constants import constant_key
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription

from .programs import KIND, call, loader, tensor

WEIGHT = np.arange(4, dtype=np.float32)
BIAS = np.full(4, 2.0, dtype=np.float32)
LOADER = loader({"f": lambda inputs: [inputs[0] * inputs[1]]})
"""The loader of the artifact's one module: a product."""


def description() -> ProgramDescription:
    """Return y = if c then f(f(x, w), w) else x, with one constant handed over to the module."""
    key = constant_key(WEIGHT)
    product = Procedure(
        "product",
        (
            tensor("a", "float32", [4], "input", index=0),
            tensor("b", "float32", [4], "output", index=0),
            tensor("t", "float32", [4], "arena", offset=0),
            tensor("w", "float32", [4], "constant", constant=key),
        ),
        (0,),
        (1,),
        (call("f", [0, 3], [2]), call("f", [2, 3], [1])),
        64,
        16,
    )
    same = Procedure(
        "same",
        (tensor("a", "float32", [4], "input", index=0), tensor("b", "float32", [4], "output", index=0)),
        (0,),
        (1,),
        (Call("copy", (0,), (1,)),),
    )
    main = Procedure(
        "main",
        (
            tensor("x", "float32", [4], "input", index=0),
            tensor("c", "bool", [], "input", index=1),
            tensor("y", "float32", [4], "output", index=0),
        ),
        (0, 1),
        (2,),
        (Call("if", (1,), (2,), bodies=(1, 2), arguments=((0,), (0,)), origin=("choose",)),),
    )
    module = Module("m", KIND, ("f",), b"code", {"bias": BIAS}, "tester", "pip install tester")
    return ProgramDescription((main, product, same), (module,), {key: WEIGHT}, files={"model.onnx": b"onnx"})


def write(path: Path) -> bytes:
    """Save the artifact and return its bytes."""
    save(description(), path)
    return path.read_bytes()


def members_of(raw: bytes) -> dict[str, bytes]:
    """Return an artifact's members in their order."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(raw: bytes, change: Callable[[Any], None]) -> bytes:
    """Return the artifact with its manifest changed."""
    members = members_of(raw)
    facts = json.loads(members["manifest.json"])
    change(facts)
    return packed({**members, "manifest.json": json.dumps(facts).encode()})


def resealed(members: dict[str, bytes]) -> bytes:
    """Return an artifact of these members, hashes in the manifest made right."""
    facts = json.loads(members["manifest.json"])
    facts["members"] = {name: _fingerprint(data) for name, data in members.items() if name != "manifest.json"}
    return packed({**members, "manifest.json": json.dumps(facts).encode()})


def packed(members: dict[str, bytes]) -> bytes:
    """Return an archive of these members."""
    file = io.BytesIO()
    write_archive(file, members)
    return file.getvalue()


def load_mutations(path: Path, seed: int) -> tuple[str, int]:
    """Load many copies of the artifact at ``path`` with a changed manifest, in a process of its own.

    Returns its output, ``done True`` if some could be loaded and the others were refused, and its exit code.
    """
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", MUTATIONS, path, str(seed), root, "400"], capture_output=True, text=True, timeout=300
    )
    return found.stdout + found.stderr, found.returncode


MUTATIONS = """
import copy, json, random, sys
sys.path.insert(0, sys.argv[3])
from graft.errors import ArtifactError
from graft.runtime.loading import load
from tests.runtime.artifacts import LOADER, members_of, packed

NUMBERS = [-1, 0, 1, 63, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 64, 0.5]
VALUES = [*NUMBERS, None, True, "", "x", "m", "f", [], [0], [-1], {}, {"a": 1}]
path, seed = sys.argv[1], int(sys.argv[2])
raw = open(path, "rb").read()
members, generator = members_of(raw), random.Random(seed)
text = members["manifest.json"]

def places(value, found):
    for key in value if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            places(value[key], found)
    return found

loaded = 0
for _ in range(int(sys.argv[4])):
    facts = json.loads(text)
    for _ in range(generator.choice([1, 1, 2, 4])):
        container, key = generator.choice(places(facts, []))
        match generator.randrange(4):
            case 0:
                container[key] = copy.deepcopy(generator.choice(VALUES))
            case 1:
                del container[key]
            case 2 if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case _ if isinstance(container[key], int):
                container[key] += generator.choice([-64, -1, 1, 64, 4096])
    open(path, "wb").write(packed({**members, "manifest.json": json.dumps(facts).encode()}))
    try:
        load(path, threads=1, loaders=[LOADER], strict=True)
        loaded += 1
    except ArtifactError:
        pass
print("done", loaded > 0)
"""
