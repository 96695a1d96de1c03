"""Folders that are written whole or not at all: made beside their place, and renamed when everything is in them.

Files that go into a folder with others take the place of old ones, one after another, when all of them are written; if
one cannot, those before it go back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from graft.errors import ArtifactError, GraftError
from graft.runtime.system.files import PREFIX, writing

MARK = ".graft-project"
"""A file that lists what was written, one name a line: such a folder may be written again."""


class _RefusedError(GraftError):
    """A file of the new folder cannot be written."""


Parts = str | bytes | Iterable[bytes | memoryview]


def write_folder(path: str | os.PathLike[str], files: Mapping[str, Parts], made_later: Iterable[str] = ()) -> int:
    """Write files into a folder, which is there with all of them or as it was before; return their bytes.

    A folder that is there must be empty, or one that was written so with nothing else in it but ``made_later``. Raises
    ArtifactError for whatever the system refuses.
    """
    place = Path(os.path.realpath(path))
    _check_place(place, path, {*made_later})
    with _refusals(path), _beside(place) as folder:
        written = sum(_write(folder / name, parts) for name, parts in files.items())
        _write(folder / MARK, "".join(f"{name}\n" for name in sorted(files)))
        _put(folder, place)
    return written


def write_files(path: str | os.PathLike[str], files: Mapping[str, Parts]) -> list[Path]:
    """Write files into a folder, which may have others: all of them or none; return where they are.

    The folder, and those above it, are made where they are missing. Raises ArtifactError for what the system refuses.
    """
    place = Path(os.path.realpath(path))
    if os.path.lexists(place) and not place.is_dir():
        raise ArtifactError(f"'{path}' is there and is no folder; name another", path=str(path))
    there = next(one for one in (place, *place.parents) if os.path.lexists(one))
    with _refusals(path), _inside(there) as room:
        new = room / "new" / place.relative_to(there)
        for name, parts in files.items():
            _write(new / name, parts)
        if there == place:
            _exchange(new, place, files, room / "old")
        else:
            first = place.relative_to(there).parts[0]
            os.rename(room / "new" / first, there / first)
    return [Path(path) / name for name in files]


def _exchange(new: Path, place: Path, names: Iterable[str], old: Path) -> None:
    """Move files to their place and what was there away; put everything back if that fails."""
    old.mkdir()
    with ExitStack() as undo:
        for name in names:
            if os.path.lexists(place / name):
                os.rename(place / name, old / name)
                undo.callback(os.replace, old / name, place / name)
            os.rename(new / name, place / name)
            undo.callback(os.replace, place / name, new / name)
        undo.pop_all()


def _check_place(place: Path, path: str | os.PathLike[str], made_later: set[str]) -> None:
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise ArtifactError(f"'{path}' is there and is no folder; name another", path=str(path))
    names = {one.relative_to(place).as_posix() for one in place.rglob("*") if not one.is_dir()}
    mark = place / MARK
    own = {MARK, *mark.read_text(encoding="utf-8").splitlines()} if mark.is_file() else set()
    foreign = sorted(name for name in names - own if name.partition("/")[0] not in made_later)
    if foreign:
        raise ArtifactError(
            f"the folder '{path}' has files that are not of an export, such as '{foreign[0]}', which would be lost; "
            "name another folder, or move them away",
            path=str(path),
        )


@contextmanager
def _refusals(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, _RefusedError) as error:
        failure = error if isinstance(error, OSError) else error.__cause__
        reason = getattr(failure, "strerror", None) or str(failure)
        left = "it is as it was before" if os.path.lexists(path) else "nothing was written"
        raise ArtifactError(f"cannot write the folder '{path}': {reason}; {left}", path=str(path)) from failure


def _beside(place: Path) -> AbstractContextManager[Path]:
    return _inside(place.parent)


@contextmanager
def _inside(parent: Path) -> Iterator[Path]:
    folder = Path(mkdtemp(prefix=PREFIX, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, parts: Parts) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    chunks = [parts.encode()] if isinstance(parts, str) else [parts] if isinstance(parts, bytes) else parts
    with writing(path, "file", _RefusedError, durable=False) as file:
        for chunk in chunks:
            file.write(chunk)
        return file.tell()


def _put(folder: Path, place: Path) -> None:
    """Give a new folder its name; the old one, if any, goes away after that."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    if not place.is_dir():
        os.rename(folder, place)
        return
    old = Path(mkdtemp(prefix=PREFIX, dir=place.parent))
    os.rename(place, old / "old")
    try:
        os.rename(folder, place)
    except OSError:
        os.rename(old / "old", place)
        raise
    finally:
        with suppress(OSError):
            shutil.rmtree(old)
