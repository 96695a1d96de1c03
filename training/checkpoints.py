"""Checkpoints: what a training goes on from, as one safetensors file that is written whole or not at all."""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graft.errors import ModelError
from graft.runtime.artifact import safetensors
from graft.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from graft.runtime.system.files import writing
from graft.runtime.system.json_text import parse_json

FORMAT = "graft-training-1"


def write_checkpoint(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], facts: Mapping[str, str]) -> None:
    """Write arrays by name, and facts as the file's metadata; what stood at the path stays until all is written."""
    with writing(path, "the checkpoint", ModelError) as file:
        for chunk in safetensors(arrays, {"format": FORMAT, "sha256": _digest(arrays), **facts}, alignment=1):
            file.write(chunk)


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return arrays and facts; raise ModelError for a file that is no checkpoint, or damaged."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the checkpoint '{path}': {error.strerror}") from error
    header, body = _header(path, data)
    facts = header.pop("__metadata__", {})
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ModelError(f"'{path}' is no checkpoint of a training; it says no format '{FORMAT}'")
    arrays = {name: _array(path, name, row, body) for name, row in header.items() if not _is_pad(name, row)}
    if facts.get("sha256", _digest(arrays)) != _digest(arrays):
        raise ModelError(f"the checkpoint '{path}' is damaged: its arrays are not those that were written")
    return arrays, facts


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + b"\0" + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _header(path: str | os.PathLike[str], data: bytes) -> tuple[dict[str, Any], bytes]:
    size = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    try:
        header = parse_json(data[8 : 8 + size])
    except ValueError:
        header = None
    if not isinstance(header, dict) or len(data) < 8 + size:
        raise ModelError(f"'{path}' is no checkpoint, or damaged: it has no header of safetensors")
    return header, data[8 + size :]


def _is_pad(name: str, row: Any) -> bool:
    """Whether an entry is none of the arrays, but lies between two: in checkpoints of earlier versions."""
    return isinstance(row, dict) and row.get("dtype") == "U8" and name.startswith("pad.")


def _array(path: str | os.PathLike[str], name: str, row: Any, body: bytes) -> np.ndarray:
    names = {one.safetensors: one.name for one in ELEMENT_TYPES.values()}
    try:
        kind, shape, (begin, end) = numpy_dtype(names[row["dtype"]]), tuple(row["shape"]), row["data_offsets"]
        if not 0 <= begin <= end <= len(body) or end - begin != math.prod(shape) * kind.itemsize:
            raise ValueError
        return np.frombuffer(body[begin:end], kind).reshape(shape).copy()
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the checkpoint '{path}' is damaged: tensor '{name}' is not what its header says") from error
