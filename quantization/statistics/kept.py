"""Statistics in a file, so that a calibration that was broken off goes on where it was.

A file is named after what was gathered: the model, what is looked at in it, and the first batch. It holds a digest of
each batch that was seen, and ends with a digest of itself: a damaged file counts as none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import BinaryIO, Protocol, cast
from zipfile import ZipFile

import numpy as np
import onnx_ir as ir

from graft.errors import RecipeError
from graft.quantization.statistics.data import Batch
from graft.runtime.system.files import make_folder, writing

DIGEST = 32
SHARE = 20
"""How many times as long as the last write took is gathered before the next one."""
SECONDS = 5.0
"""The least seconds between two writes."""


class Gathering(Protocol):
    """What gathers, in attributes that hold an array, a number or None."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of these attributes."""


class Kept:
    """The statistics of some observers, in a folder."""

    def __init__(
        self, folder: str | os.PathLike[str], model: ir.Model, observers: Mapping[str, Sequence[Gathering]]
    ) -> None:
        self._folder, self._observers = make_folder(folder, "statistics", RecipeError), observers
        self._key = hashlib.sha256(str(model.graph).encode())
        for name in sorted(model.graph.initializers):
            tensor = model.graph.initializers[name].const_value
            self._key.update(name.encode() + (b"" if tensor is None else tensor.tobytes()))
        self._key.update(repr([(name, [type(one).__name__ for one in observers[name]]) for name in observers]).encode())
        self._path, self._next = Path(), ""
        self._batches: list[str] = []
        self._known = self._seen = 0
        self._whole = True
        self._due = perf_counter() + SECONDS

    def has(self, batch: Batch) -> bool:
        """Whether the next batch has been gathered; raise RecipeError if another one was in its place."""
        digest = _digest_of(batch)
        if not self._seen:
            self._key.update(digest.encode())
            self._path = self._folder / f"{self._key.hexdigest()[:DIGEST]}.statistics"
            self._known = len(self._batches) if self._read() else 0
        self._seen += 1
        if self._seen > self._known:
            self._next = digest
            return False
        if digest != self._batches[self._seen - 1]:
            raise self._of_other_data(f"batch {self._seen} is another")
        return True

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Let observers take in the batch that was asked for last; write what they have from time to time."""
        self._whole = False
        yield
        self._whole = True
        self._batches.append(self._next)
        if perf_counter() > self._due:
            self._write()

    def close(self, *, complete: bool) -> None:
        """Write what is new, unless a batch is half gathered; raise RecipeError if the data ended too early."""
        if complete and self._seen < self._known:
            raise self._of_other_data(f"there are {self._seen} batches, and it is of {self._known}")
        if self._whole and len(self._batches) > self._known:
            self._write()

    def _write(self) -> None:
        began, arrays = perf_counter(), {"batches": np.array(self._batches)}
        for key, (one, field) in self._fields().items():
            if getattr(one, field) is not None:
                arrays[key] = np.asarray(getattr(one, field))
        with writing(self._path, "statistics", RecipeError, durable=False) as file:
            hashed = _Hashed(file)
            with ZipFile(cast(BinaryIO, hashed), "w") as members:  # as `numpy.savez`, which wants a file to read, too
                for name, array in arrays.items():
                    np.lib.format.write_array(member := BytesIO(), array, allow_pickle=False)
                    members.writestr(f"{name}.npy", member.getbuffer())
            file.write(hashed.digest.digest())
        now = perf_counter()
        self._due = now + max(SECONDS, SHARE * (now - began))

    def _read(self) -> bool:
        """Restore what a file has; return whether there is a whole one."""
        try:
            with self._path.open("rb") as file:
                digest, left = hashlib.sha256(), self._path.stat().st_size - DIGEST
                while left > 0 and (part := file.read(min(left, 2**20))):
                    digest.update(part)
                    left -= len(part)
                if file.read() != digest.digest():
                    return False
            with np.load(self._path, allow_pickle=False) as content:
                self._batches = content["batches"].tolist()
                for key, (one, field) in self._fields().items():
                    array = content.get(key)
                    setattr(one, field, array if array is None or array.ndim else array.item())
        except OSError:
            return False
        return True

    def _fields(self) -> dict[str, tuple[Gathering, str]]:
        """Return all attributes that are kept, by a name in the file."""
        return {
            f"{place}_{number}_{field}": (one, field)
            for place, observers in enumerate(self._observers.values())
            for number, one in enumerate(observers)
            for field in one.kept
        }

    def _of_other_data(self, how: str) -> RecipeError:
        return RecipeError(
            f"statistics '{self._path}' were gathered from other data: {how}; give the same data, or delete the file",
            path=str(self._path),
        )


class _Hashed:
    """A file that is written from front to end, and its digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write bytes."""
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is whole."""


def _digest_of(batch: Batch) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(batch.feeds.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
