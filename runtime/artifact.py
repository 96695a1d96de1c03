"""Artifacts: one file per program, written here and read by the native runtime.

A stored ZIP64 archive whose members start at multiples of 64 bytes, so that weights are mapped and not copied:
``manifest.json`` (format, ABI, targets, modules, procedures, and the SHA-256 of every other member),
``constants.safetensors`` (each constant once, named by the hash of its content), ``modules/`` and further files. The
same program gives the same bytes. A failure to write leaves what was there.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from graft.errors import ArtifactError
from graft.runtime import _native
from graft.runtime.c_source import source_from_json, source_to_json
from graft.runtime.constants import ConstantStore
from graft.runtime.dtypes import dtype_name, element_type
from graft.runtime.procedure import (
    ABI_VERSION,
    ALIGNMENT,
    DEVICE_FORMAT_VERSION,
    EQUATION_FORMAT_VERSION,
    FORMAT_VERSION,
    Device,
    Module,
    ProgramDescription,
    procedure_from_json,
    procedures_to_json,
)
from graft.runtime.system.files import writing

PRODUCER = "graft-compiler"
SIGNATURES = "signatures.json"
"""The one member that the manifest does not list: it signs the manifest (runtime/trust/signatures.py)."""
_EPOCH = 0x00210000  # 1980-01-01 00:00, the first date that ZIP knows
_SATURATED = 0xFFFFFFFF

Content = bytes | Sequence[bytes | memoryview]


def manifest(description: ProgramDescription, keys: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the manifest without its member list; ``keys`` are the constants of each module, name to content key."""
    modules = [
        {
            "name": module.name,
            "kind": module.kind,
            "member": module_path(number, module),
            "functions": list(module.functions),
            "constants": dict(constants),
            "plugin": module.plugin,
            "install": module.install,
            **({"backend": module.backend, "options": dict(module.options)} if module.backend else {}),
            **({"source": source_to_json(module.source, source_path(number))} if module.source else {}),
        }
        for number, (module, constants) in enumerate(zip(description.modules, keys, strict=True))
    ]
    return {
        "format": _format(description),
        "abi": ABI_VERSION,
        "producer": PRODUCER,
        "targets": [dict(target) for target in description.targets],
        "modules": modules,
        **procedures_to_json(description),
        "metadata": dict(description.metadata),
    }


def _format(description: ProgramDescription) -> int:
    """Return the oldest format that says all of a program."""
    if any(procedure.equations for procedure in description.procedures):
        return EQUATION_FORMAT_VERSION
    return DEVICE_FORMAT_VERSION if description.devices else FORMAT_VERSION


def module_path(number: int, module: Module) -> str:
    """Return the member that holds a module's bytes."""
    return f"modules/{number:04d}.{module.kind.replace(':', '_')}"


def source_path(number: int) -> str:
    """Return the member that holds a module's C text."""
    return f"modules/{number:04d}.c"


def save(description: ProgramDescription, path: str | os.PathLike[str]) -> int:
    """Write a program to ``path`` (see `graft.runtime.system.files`) and return its size; raises ArtifactError."""
    check(description)
    for module in description.modules:
        if module.bound:
            raise ArtifactError(
                f"module '{module.name}' cannot be saved: {module.bound}; compile the model where it is to run",
                module=module.name,
            )
    store = ConstantStore(description.constants)
    keys = [{name: store.add(array) for name, array in module.constants.items()} for module in description.modules]
    members: dict[str, Content] = {"constants.safetensors": safetensors(store.arrays)}
    members |= {module_path(number, module): module.data for number, module in enumerate(description.modules)}
    members |= {
        source_path(number): module.source.text.encode()
        for number, module in enumerate(description.modules)
        if module.source is not None
    }
    members |= description.files
    facts = manifest(description, keys)
    facts["members"] = {name: _fingerprint(content) for name, content in sorted(members.items())}
    header = _chunks(members["constants.safetensors"])[0]
    facts["members"]["constants.safetensors"]["header"] = hashlib.sha256(header).hexdigest()
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    with writing(path, "artifact", ArtifactError) as file:
        return write_archive(file, {"manifest.json": text, **dict(sorted(members.items()))})


def read(
    path: str | os.PathLike[str],
    *,
    later: bool = False,
    accept: Callable[[bytes, bytes | None], None] | None = None,
) -> ProgramDescription:
    """Return the program in an artifact; its constants are read-only and mapped, not copied.

    Everything is checked first: structure, format version, and the hash of every member and constant. With ``later``
    the bytes of constants are not: the program that is made of the description does it when it first runs, and `check`
    before anything else uses them. The procedures are checked when a program is made of them. Raises ArtifactError.

    ``accept`` raises for an artifact that is not to be used; it gets what a signature signs, and the artifact's
    signatures, before anything but the manifest is looked at. The file is copied into memory then, and all of it is
    checked.
    """
    members, constants, artifact = _native.open_artifact(path, accept)
    later = later and accept is None
    if not later:
        _native.check_artifact(artifact)
    facts = json.loads(bytes(members["manifest.json"]))
    try:
        if facts["abi"] != ABI_VERSION:
            raise ArtifactError(
                f"artifact '{path}' was compiled for ABI version {facts['abi']} of Graft's runtime, and this runtime "
                f"has version {ABI_VERSION}; compile it again, or install the runtime that belongs to it",
                path=str(path),
            )
        modules = tuple(_module(row, members, constants) for row in facts["modules"])
        procedures = tuple(procedure_from_json(row) for row in facts["procedures"])
        own = {row["member"] for row in facts["modules"]} | {"manifest.json", "constants.safetensors", SIGNATURES}
        own |= {row["source"]["member"] for row in facts["modules"] if "source" in row}
        files = {name: bytes(content) for name, content in members.items() if name not in own}
        targets = tuple(dict(target) for target in facts["targets"])
        metadata, unchecked = dict(facts["metadata"]), artifact if later else None
        variants = tuple(facts.get("variants", ()))
        devices = tuple(Device(row["name"], row["plugin"], row["install"]) for row in facts.get("devices", ()))
        return ProgramDescription(
            procedures, modules, constants, targets, metadata, files, unchecked, variants, devices
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ArtifactError(
            f"artifact '{path}' is damaged: its manifest lacks a field, or has one of another kind ({error}); "
            "compile it again",
            path=str(path),
        ) from error


def check(description: ProgramDescription) -> None:
    """Check the constants of a description that was read for later; raise ArtifactError if they are damaged."""
    if description.artifact is not None:
        _native.check_artifact(description.artifact)


def _module(row: Mapping[str, Any], members: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray]) -> Module:
    """Return a module; raise KeyError, TypeError, AttributeError or ValueError where the row is not one."""
    texts = [row[key] for key in ("name", "kind", "plugin", "install")]
    functions = tuple(row["functions"])
    for text in (*texts, *functions):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a text")
    name, kind, plugin, install = texts
    handed = {name: constants[key] for name, key in row["constants"].items()}
    source = None
    if "source" in row:
        source = source_from_json(row["source"], bytes(members[row["source"]["member"]]).decode())
        if source.language == "c" and set(source.functions) != set(functions):
            raise ValueError(f"the C text of module {name!r} has other functions than the module")
    backend, options = row.get("backend", ""), dict(row.get("options", {}))
    if not isinstance(backend, str):
        raise TypeError(f"{backend!r} is not a text")
    return Module(
        name, kind, functions, bytes(members[row["member"]]), handed, plugin, install, source=source, backend=backend,
        options=options,
    )  # fmt: skip


def _fingerprint(content: Content) -> dict[str, object]:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(content):
        digest.update(chunk)
        size += len(chunk)
    return {"sha256": digest.hexdigest(), "size": size}


def _chunks(content: Content) -> Sequence[bytes | memoryview]:
    return (content,) if isinstance(content, bytes) else content


def safetensors(
    constants: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None, alignment: int = ALIGNMENT
) -> list[bytes | memoryview]:
    """Return the safetensors layout of constants by key, each at a multiple of 64 bytes (``pad.*`` entries between)."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    chunks: list[bytes | memoryview] = []
    offset = 0
    for key in sorted(constants):
        array = np.ascontiguousarray(constants[key]).reshape(constants[key].shape)
        gap = -offset % alignment
        if gap:
            header[f"pad.{offset}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [offset, offset + gap]}
            chunks.append(bytes(gap))
            offset += gap
        header[key] = {
            "dtype": element_type(dtype_name(array.dtype)).safetensors,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        if array.nbytes:
            chunks.append(array.reshape(-1).view(np.uint8).data)
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return [struct.pack("<Q", len(text)) + text, *chunks]


@dataclass(slots=True)
class _Entry:
    name: bytes
    crc: int
    size: int
    offset: int


@dataclass(slots=True)
class _Position:
    """A file and how many bytes were written to it."""

    file: BinaryIO
    offset: int = 0
    entries: list[_Entry] = field(default_factory=list)

    def write(self, data: bytes | memoryview) -> None:
        self.file.write(data)
        self.offset += len(data)


def write_archive(file: BinaryIO, members: Mapping[str, Content]) -> int:
    """Write a stored ZIP64 archive (PKWARE APPNOTE 6.3.9) whose members start at multiples of 64 bytes.

    The file is written from front to end, so it may be a pipe. Returns the number of bytes.
    """
    position = _Position(file)
    for name, content in members.items():
        _write_member(position, name.encode(), _chunks(content))
    directory = position.offset
    for entry in position.entries:
        wide = struct.pack("<HHQQQ", 1, 24, entry.size, entry.size, entry.offset)
        fixed = (45, 45, 0x0800, 0, _EPOCH & 0xFFFF, _EPOCH >> 16, entry.crc, _SATURATED, _SATURATED)
        sizes = (len(entry.name), len(wide), 0, 0, 0, 0, _SATURATED)
        position.write(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, *fixed, *sizes) + entry.name + wide)
    _write_end(position, directory)
    return position.offset


def _write_member(position: _Position, name: bytes, chunks: Sequence[bytes | memoryview]) -> None:
    """Write local header, padding as an extra field, and data."""
    crc = 0
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    size = sum(len(chunk) for chunk in chunks)
    wide = struct.pack("<HHQQ", 1, 16, size, size)
    padding = -(position.offset + 30 + len(name) + len(wide) + 4) % ALIGNMENT
    extra = wide + struct.pack("<HH", 0x4752, padding) + bytes(padding)
    position.entries.append(_Entry(name, crc, size, position.offset))
    fixed = (45, 0x0800, 0, _EPOCH & 0xFFFF, _EPOCH >> 16, crc, _SATURATED, _SATURATED, len(name), len(extra))
    position.write(struct.pack("<IHHHHHIIIHH", 0x04034B50, *fixed) + name + extra)
    for chunk in chunks:
        position.write(chunk)


def _write_end(position: _Position, directory: int) -> None:
    """Write the 64-bit end record, its locator and the end record."""
    size, count, end64 = position.offset - directory, len(position.entries), position.offset
    position.write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, size, directory))
    position.write(struct.pack("<IIQI", 0x07064B50, 0, end64, 1))
    position.write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, _SATURATED, _SATURATED, 0))
