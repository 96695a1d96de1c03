"""Writing files: whole or not at all, and never in place of what is no regular file.

What already stands at a path decides. A regular file, or nothing, gets its new content at once, when all of it is
written: under no name at all where the file system has such files (``O_TMPFILE``), else as ``.graft-*.part`` beside its
place. A symbolic link is followed, and stays. Mode, owner, group and access lists of a file stay what they were; a new
one has the mode that the umask leaves. Its other hard links keep the old content. Devices, pipes and the descriptors of
this process (``/dev/stdout``) are written as they are, from where they stand, so writers must not seek.

A process that is killed leaves nothing where files without a name exist, else a ``.part`` that the next write into that
folder removes: a living writer holds a lock on its own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from graft.errors import GraftError

PREFIX, SUFFIX = ".graft-", ".part"
STALE_SECONDS = 60.0
"""The age from which an unlocked ``.part`` is abandoned: a new one is locked a moment after it is made."""
_DESCRIPTOR = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd/(\d+)")
_MOST_LINKS = 40
_UNNAMED = getattr(os, "O_TMPFILE", 0)
_UNNAMED_REFUSED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""What file systems without unnamed files, and systems that do not know them, answer."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where bytes go: ``path`` without links, or as given with ``in_place``; ``old`` describes the file to replace."""

    path: str
    in_place: bool = False
    descriptor: int | None = None
    old: os.stat_result | None = None

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


@contextmanager
def writing(
    path: str | os.PathLike[str],
    what: str,
    error: type[GraftError] = GraftError,
    *,
    durable: bool = True,
    mode: int = 0o666,
) -> Iterator[BinaryIO]:
    """Open ``path`` for writing from front to end; the file is there when the block ends without an exception.

    ``what`` names the content in messages (``report``). Raises ``error`` for whatever the system refuses, inside the
    block too; a regular file is then as it was before. With ``durable`` the bytes are on the disk when the block ends.
    ``mode`` is that of a new file, less what the umask takes.
    """
    place: _Place | None = None
    try:
        place = _place_of(os.fspath(path))
        with _in_place(place) if place.in_place else _replacing(place, durable, mode) as file:
            yield file
    except OSError as failure:
        raise error(
            f"cannot write {what} '{path}': {_reason(path, place, failure)}; {_left(path, place)}", path=str(path)
        ) from failure


def write(path: str | os.PathLike[str], data: bytes | str, what: str, error: type[GraftError] = GraftError) -> None:
    """Write ``data`` (text as UTF-8) to ``path``, as `writing` does."""
    with writing(path, what, error) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def make_folder(path: str | os.PathLike[str], what: str, error: type[GraftError] = GraftError) -> Path:
    """Make a folder, and those above it, unless it is there; raise ``error`` if that fails."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        reason = "there is a file of this name" if isinstance(failure, FileExistsError) else _text(failure)
        raise error(f"cannot make the folder '{path}' for {what}: {reason}; name another", path=str(path)) from failure
    return Path(path)


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Whether writing to ``path`` would write to this process's standard output, where that goes anywhere."""
    try:
        given, own = os.stat(path), os.fstat(1)
    except OSError:
        return False
    return os.path.samestat(given, own) and not os.path.samestat(own, os.stat(os.devnull))


# ---- Places -------------------------------------------------------------------------------------------------------


def _place_of(path: str) -> _Place:
    number = _own_descriptor(path)
    if number is not None:
        return _Place(path, True, number)
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return _Place(os.path.realpath(path))
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(facts.st_mode):
        return _Place(path, True)
    if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, "it is there and may not be written")
    return _Place(os.path.realpath(path), old=facts)


def _own_descriptor(path: str) -> int | None:
    """The descriptor of this process that a path such as ``/dev/stdout`` or ``/dev/fd/63`` names, link by link."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder), name)
        named = _DESCRIPTOR.fullmatch(path)
        if named is not None:
            return int(named[2]) if int(named[1]) == os.getpid() else None
        if not os.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


@contextmanager
def _in_place(place: _Place) -> Iterator[BinaryIO]:
    if place.descriptor == 1:
        sys.stdout.flush()  # what was printed before stands before
    descriptor = (
        os.open(place.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
        if place.descriptor is None
        else os.dup(place.descriptor)
    )
    with os.fdopen(descriptor, "wb") as file:
        yield file


# ---- Regular files ------------------------------------------------------------------------------------------------


@contextmanager
def _replacing(place: _Place, durable: bool, mode: int) -> Iterator[BinaryIO]:
    """Open a file beside the place and put it there when the block succeeds."""
    descriptor, name = _temporary(place.folder, mode if place.old is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if place.old is not None:
                _keep_attributes(descriptor, place.path, place.old)
            if durable:
                os.fsync(descriptor)
            _publish(descriptor, name, place)
            name = None
    except BaseException:
        if name is not None:
            with suppress(OSError):
                os.unlink(name)
        raise
    if durable:
        _flush_folder(place.folder)


def _temporary(folder: str, mode: int) -> tuple[int, str | None]:
    """Return the descriptor of a new, locked file in a folder, and its name if it has one."""
    if _UNNAMED:
        try:
            descriptor = os.open(folder, _UNNAMED | os.O_RDWR | os.O_CLOEXEC, mode)
        except OSError as error:
            if error.errno not in _UNNAMED_REFUSED:
                raise
        else:
            if os.path.exists(f"/proc/self/fd/{descriptor}"):  # a name is given by this path
                _lock(descriptor)
                return descriptor, None
            os.close(descriptor)
    remove_abandoned(folder)
    name = _new_name(folder)
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, mode)
    _lock(descriptor)
    return descriptor, name


def _publish(descriptor: int, name: str | None, place: _Place) -> None:
    """Give the file its name: at once where none is taken, else by way of a name of its own."""
    if name is None:
        if place.old is None:
            with suppress(FileExistsError):  # since it was looked for
                _link(descriptor, place.path)
                return
        remove_abandoned(place.folder)
        name = _new_name(place.folder)
        _link(descriptor, name)
    try:
        os.replace(name, place.path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _link(descriptor: int, name: str) -> None:
    # Without a folder's descriptor (which an absolute path does not need) Python calls link(2), which follows no links.
    os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)


def _keep_attributes(descriptor: int, path: str, old: os.stat_result) -> None:
    """Give a new file the owner, group, access lists and mode of the old one, as far as that is allowed.

    A group that cannot be kept gets the rights of everybody, no more.
    """
    mode = stat.S_IMODE(old.st_mode) & 0o777
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            try:
                os.fchown(descriptor, -1, old.st_gid)
            except OSError:
                mode = mode & 0o707 | (mode & 0o007) << 3
    with suppress(OSError):
        for attribute in os.listxattr(path):
            with suppress(OSError):
                os.setxattr(descriptor, attribute, os.getxattr(path, attribute))
    os.fchmod(descriptor, mode)


def _new_name(folder: str) -> str:
    return os.path.join(folder, f"{PREFIX}{secrets.token_hex(8)}{SUFFIX}")


def _lock(descriptor: int) -> None:
    with suppress(OSError):  # a file system without locks: nothing will be taken for abandoned either
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_abandoned(folder: str | os.PathLike[str]) -> int:
    """Remove what writers that were killed have left in a folder; return how many files that were."""
    removed = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                with suppress(OSError):
                    removed += _remove_if_abandoned(entry.path)
    return removed


def _remove_if_abandoned(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        own = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid()
        if not own or time.time() - facts.st_mtime < STALE_SECONDS:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
        return True
    finally:
        os.close(descriptor)


def _flush_folder(folder: str) -> None:
    """Write a folder's new entry to the disk where folders can be opened for that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- Messages -----------------------------------------------------------------------------------------------------


def _reason(path: str | os.PathLike[str], place: _Place | None, failure: OSError) -> str:
    folder = os.path.dirname(os.fspath(path) if place is None else place.path) or "."
    if isinstance(failure, FileNotFoundError) and not os.path.isdir(folder):
        return f"there is no folder '{folder}', make it first"
    if isinstance(failure, NotADirectoryError):
        return f"'{folder}' is no folder"
    return _text(failure)


def _text(failure: OSError) -> str:
    return failure.strerror or str(failure)


def _left(path: str | os.PathLike[str], place: _Place | None) -> str:
    """What a failure leaves."""
    if place is not None and place.in_place:
        return "a part of it may have been written"
    name = os.path.basename(os.fspath(path)) or os.fspath(path)
    return f"'{name}' is as it was before" if os.path.lexists(path) else "nothing was written"
