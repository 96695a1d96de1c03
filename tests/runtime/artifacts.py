"""A small artifact of a program that runs, and copies of it with one thing changed and every checksum right."""

from __future__ import annotations

import io
import json
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
