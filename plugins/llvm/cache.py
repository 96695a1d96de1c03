"""Objects of kernels kept on disk, for the next compilation of the same kernels in any process.

An entry is found by the sha256 of everything its object depends on (`kernel_key`): the kernel's structure, the target,
LLVM, and the source of this compiler. Files are written under another name and renamed, so that readers see whole
entries only; a damaged one is as good as none. The oldest go when there are too many bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np

from graft.core.target import Target
from graft.plugins.llvm.packing import Places, Strided

LIMIT_BYTES = 512 << 20
KEPT = 0.8
"""The share of the limit that is left after the oldest entries were removed."""
_MAGIC = b"GRAFTKC2"
_SOURCES = ("core/schedule", "core/tensor_ir", "core/operators", "core/types.py", "core/target.py", "plugins/llvm")


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled kernel: its ELF object, the name of its function there, and how its constants are packed."""

    symbol: str
    object: bytes
    places: Places | None


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The entries in a directory. Failures to write are no errors: a compilation does not depend on its cache."""

    directory: Path
    limit: int = LIMIT_BYTES

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key, None if there is none that is whole; reading makes it young again."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return _decode(data)

    def put(self, key: str, entry: Entry) -> None:
        """Keep an entry."""
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_encode(entry))
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise

    def trim(self) -> int:
        """Remove the entries used longest ago if all are larger than the limit; return the bytes that went."""
        files = sorted(self._files(), key=lambda row: row[1])
        total = sum(size for _, _, size in files)
        removed = 0
        if total <= self.limit:
            return 0
        for path, _, size in files:
            if total - removed <= self.limit * KEPT:
                break
            with suppress(OSError):
                path.unlink()
                removed += size
        return removed

    def clear(self) -> int:
        """Remove all entries; return how many there were."""
        count = 0
        for path, _, _ in list(self._files()):
            with suppress(OSError):
                path.unlink()
                count += 1
        return count

    def size(self) -> tuple[int, int]:
        """Return the number of entries and their bytes."""
        sizes = [size for _, _, size in self._files()]
        return len(sizes), sum(sizes)

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / key[2:]

    def _files(self) -> Iterator[tuple[Path, float, int]]:
        """Yield path, time of last use and size of everything in the directory, abandoned temporary files too."""
        for path in self.directory.glob("*/*"):
            with suppress(OSError):
                facts = path.stat()
                yield path, facts.st_mtime, facts.st_size


def kernel_key(structure: str, target: Target, version: str) -> str:
    """Return the key of a kernel; ``version`` names LLVM."""
    facts = [getattr(target, field.name) for field in fields(target)]
    described = [",".join(sorted(fact)) if isinstance(fact, frozenset) else str(fact) for fact in facts]
    parts = (structure, *described, version, source_digest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def source_digest() -> str:
    """Return a digest of the source of everything between a kernel and its object."""
    import graft.core.target

    root = Path(graft.core.target.__file__).parent.parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        place = root / name
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
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
    facts = {"symbol": entry.symbol, "object": len(entry.object), "places": places}
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
    if facts["places"] is None:
        return Entry(facts["symbol"], code, None)
    places: dict[int, Strided | np.ndarray] = {}
    for row in facts["places"]:
        if (grid := row.get("grid")) is not None:
            places[row["input"]] = Strided(
                tuple(grid["shape"]), grid["first"], tuple(grid["extents"]), tuple(grid["steps"])
            )
            continue
        steps = np.frombuffer(zlib.decompress(body[end : end + row["bytes"]]), row["dtype"])
        places[row["input"]] = np.cumsum(steps, dtype=row["dtype"]).reshape(row["shape"])
        end += row["bytes"]
    return Entry(facts["symbol"], code, places)
