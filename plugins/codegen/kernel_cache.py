"""Objects of kernels kept on disk, for the next compilation of the same kernels in any process.

An entry is found by the sha256 of everything its object depends on (`kernel_key`): the kernel's structure, the target,
the compiler, and the source of what emits for it. Readers see whole entries only (`graft.runtime.system.files`); a
damaged one is as good as none. Entries are run, so only those are believed that nobody else can have made
(`graft.runtime.system.private`). The oldest go when there are too many bytes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.errors import GraftError
from graft.plugins.codegen.constant_packing import Places, Strided
from graft.plugins.codegen.kernel_source import KernelSource
from graft.runtime.c_source import function_from_json, function_to_json
from graft.runtime.procedure import Schedule
from graft.runtime.system.private import NotPrivateError, keep, read_kept, why_not_private

log = logging.getLogger("graft.codegen")

LIMIT_BYTES = 512 << 20
PROGRAM_BYTES = 4 << 30
"""The limit of a cache of whole programs, with their weights."""
KEPT = 0.8
"""The share of the limit that is left after the oldest entries were removed."""
_MAGIC = b"GRAFTKC4"
_SOURCES = (
    "core/schedule",
    "core/tensor_ir",
    "core/operators",
    "core/types.py",
    "core/machine",
    "plugins/codegen",
)
"""What stands between a kernel and an emitter."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled kernel: its ELF object, its function's name there, how constants are packed, its schedule.

    And its C text, where it has one.
    """

    symbol: str
    object: bytes
    places: Places | None
    chosen: Schedule = field(default_factory=dict)
    source: KernelSource | None = None


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The entries in a directory. Failures to write are no errors: a compilation does not depend on its cache."""

    directory: Path
    limit: int = LIMIT_BYTES

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key, None if there is none that is whole; reading makes it young again."""
        try:
            data = read_kept(self.directory, key)
        except NotPrivateError as error:
            _warn(self.directory, str(error))
            return None
        except OSError:
            return None
        return _decode(data)

    def put(self, key: str, entry: Entry) -> None:
        """Keep an entry."""
        try:
            keep(self.directory, key, "kernel", _encode(entry))
        except NotPrivateError as error:
            _warn(self.directory, str(error))
        except (OSError, GraftError) as error:
            log.info("a kernel is not kept: %s", error)

    @property
    def refusal(self) -> str | None:
        """Why nothing is read from the directory or kept there, None if it is used."""
        return why_not_private(self.directory)

    def trim(self) -> int:
        """Remove the entries used longest ago if all are larger than the limit; return the bytes that went."""
        files = sorted(self._files(), key=lambda file: file.used)
        total = sum(file.size for file in files)
        removed = 0
        if total <= self.limit:
            return 0
        for file in files:
            if total - removed <= self.limit * KEPT:
                break
            removed += file.size if self._remove(file) else 0
        return removed

    def clear(self) -> int:
        """Remove all entries; return how many there were."""
        return sum(self._remove(file) for file in self._files())

    def size(self) -> tuple[int, int]:
        """Return the number of entries and their bytes."""
        sizes = [file.size for file in self._files()]
        return len(sizes), sum(sizes)

    def _files(self) -> list[_File]:
        """Everything in the directory, abandoned temporary files too; links, which may lead out, are not followed."""
        found = []
        for folder in _names(self.directory):
            with suppress(OSError), _opened(self.directory / folder) as descriptor:
                for name in os.listdir(descriptor):
                    facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    if not stat.S_ISDIR(facts.st_mode):
                        found.append(_File(folder, name, facts.st_mtime, facts.st_size))
        return found

    def _remove(self, file: _File) -> bool:
        with suppress(OSError), _opened(self.directory / file.folder) as descriptor:
            os.unlink(file.name, dir_fd=descriptor)
            return True
        return False


@dataclass(frozen=True, slots=True)
class _File:
    """A file in a folder of the cache: name, time of last use, size."""

    folder: str
    name: str
    used: float
    size: int


def _names(directory: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(directory)
    return []


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a folder that is no link."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@cache
def _warn(directory: Path, reason: str) -> None:
    """Say once in a process that a directory is not used."""
    log.warning("the cache of kernels '%s' is not used, for what is in it would be run: %s", directory, reason)


def kernel_key(structure: str, target: Target, version: str, emitter: Path | None = None) -> str:
    """Return the key of a kernel; ``version`` names the compiler behind the ``emitter``, whose source counts."""
    compile_options = (str(target.threads), ",".join(sorted(target.without)), target.precision)
    parts = (structure, described(target.machine), *compile_options, version, source_digest(emitter))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def described(machine: Machine) -> str:
    """Return everything of a machine as text, for kernels may depend on all of it."""
    return json.dumps(asdict(machine), default=sorted, sort_keys=True)


@cache
def source_digest(emitter: Path | None) -> str:
    """Return a digest of the source of everything between a kernel and its object."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for place in (*(root / name for name in _SOURCES), *([] if emitter is None else [emitter])):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _encode(entry: Entry) -> bytes:
    places, blobs = None, [entry.object]
    if entry.places is not None:
        places = []
        for number, at in entry.places.items():
            if isinstance(at, Strided):
                places.append({"input": number, "grid": asdict(at)})
                continue
            # Differences repeat from row to row and shrink to almost nothing.
            blob = zlib.compress(np.diff(at.reshape(-1), prepend=at.dtype.type(0)).tobytes(), 1)
            places.append({"input": number, "shape": at.shape, "dtype": str(at.dtype), "bytes": len(blob)})
            blobs.append(blob)
    facts = {"symbol": entry.symbol, "object": len(entry.object), "places": places, "chosen": dict(entry.chosen)}
    if entry.source is not None:
        blobs.append(zlib.compress(entry.source.text.encode(), 1))
        facts["source"] = {"bytes": len(blobs[-1]), "function": function_to_json(entry.source.function)}
    head = json.dumps(facts).encode()
    body = b"".join((len(head).to_bytes(4, "little"), head, *blobs))
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(data: bytes) -> Entry | None:
    body = data[40:]
    if data[:8] != _MAGIC or hashlib.sha256(body).digest() != data[8:40]:
        return None
    end = 4 + int.from_bytes(body[:4], "little")
    facts = json.loads(body[4:end])
    code = body[end : end + facts["object"]]
    end += facts["object"]
    places: dict[int, Strided | np.ndarray] = {}
    for row in facts["places"] or ():
        if (grid := row.get("grid")) is not None:
            places[row["input"]] = Strided(
                tuple(grid["shape"]), grid["first"], tuple(grid["extents"]), tuple(grid["steps"])
            )
            continue
        steps = np.frombuffer(zlib.decompress(body[end : end + row["bytes"]]), row["dtype"])
        places[row["input"]] = np.cumsum(steps, dtype=row["dtype"]).reshape(row["shape"])
        end += row["bytes"]
    source = None
    if "source" in facts:
        text = zlib.decompress(body[end : end + facts["source"]["bytes"]]).decode()
        source = KernelSource(text, function_from_json(facts["source"]["function"]))
    return Entry(facts["symbol"], code, None if facts["places"] is None else places, facts["chosen"], source)
