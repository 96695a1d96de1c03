"""Folders that nobody else can write into: what is read back from them may be executed.

A folder is private if it belongs to this user or to root and no one else may write into it, and if the same holds for
every folder above it, up to the root (there, others may add entries of their own where the sticky bit keeps them from
touching ours, as in ``/tmp``). Every step is opened relative to the one before, without following links, and looked at
through its descriptor: what was checked is what is used. A file in it is checked by the same rule when it is opened.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graft.runtime.system.files import writing

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = _FOLDER | getattr(os, "O_PATH", 0)
"""A folder on the way may be one that can be passed but not listed."""


class NotPrivateError(OSError):
    """A folder or file that others may change, or that is theirs."""


@contextmanager
def private_folder(path: Path, *, make: bool = False) -> Iterator[int]:
    """Open a folder whose content can be trusted; with ``make``, make it and those above it, for this user only.

    Raises NotPrivateError if others may change it, another OSError if it is not there or cannot be opened. Links above
    it are followed before the check.
    """
    real = os.path.realpath(path)
    descriptor = os.open("/", _STEP)
    try:
        parts = Path(real).parts[1:]
        for number, name in enumerate(parts):
            is_last = number == len(parts) - 1
            inner = _opened(name, descriptor, make, _FOLDER if is_last else _STEP)
            os.close(descriptor)
            descriptor = inner
            step = os.path.join("/", *parts[: number + 1])
            _check(os.fstat(descriptor), f"the folder '{step}'", sticky=not is_last)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def inner_folder(name: str, folder: int, *, make: bool = False) -> Iterator[int]:
    """Open a folder in an open private one by the same rule."""
    descriptor = _opened(name, folder, make, _FOLDER)
    try:
        _check(os.fstat(descriptor), f"the folder '{name}'")
        yield descriptor
    finally:
        os.close(descriptor)


def read_private(name: str, folder: int) -> bytes:
    """Return the content of a file in an open private folder; raise NotPrivateError if others may change it."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise NotPrivateError(f"'{name}' is no regular file")
        _check(facts, f"the file '{name}'")
        return file.read()


def read_kept(directory: Path, key: str) -> bytes:
    """Return what a private folder keeps under a key, and make it young again; raise OSError where it has none."""
    with private_folder(directory) as folder, inner_folder(key[:2], folder) as inner:
        data = read_private(key[2:], inner)
        with suppress(OSError):
            os.utime(key[2:], dir_fd=inner, follow_symlinks=False)
    return data


def keep(directory: Path, key: str, what: str, data: bytes) -> None:
    """Keep data under a key in a private folder; raise OSError or GraftError where they cannot be."""
    with (
        private_folder(directory, make=True) as folder,
        inner_folder(key[:2], folder, make=True),
        # Nobody else can exchange a folder on the way to a private one: its path stays right.
        writing(directory / key[:2] / key[2:], what, durable=False, mode=FILE_MODE) as file,
    ):
        file.write(data)


def why_not_private(path: Path) -> str | None:
    """Return why the content of a folder, or of a file and its folder, is not to be used; None if it may be."""
    try:
        path = Path(os.path.realpath(path))
        if not os.path.isdir(path):
            with private_folder(path.parent) as folder, suppress(FileNotFoundError):
                facts = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(facts.st_mode):
                    return f"'{path}' is no regular file"
                _check(facts, f"the file '{path}'")
            return None
        with private_folder(path):
            return None
    except FileNotFoundError:
        return None  # nothing to be used yet
    except OSError as error:
        return error.strerror or str(error)


def _opened(name: str, folder: int, make: bool, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)


def _check(facts: os.stat_result, what: str, *, sticky: bool = False) -> None:
    """Raise NotPrivateError if somebody else owns or may write what the facts describe."""
    if facts.st_uid not in (os.geteuid(), 0):
        raise NotPrivateError(f"{what} belongs to another user ({_user(facts.st_uid)})")
    if sticky and facts.st_mode & stat.S_ISVTX:
        return
    if facts.st_mode & stat.S_IWOTH:
        raise NotPrivateError(f"{what} may be written by everybody (mode {stat.S_IMODE(facts.st_mode):04o})")
    if facts.st_mode & stat.S_IWGRP and not _is_own_group(facts.st_gid):
        raise NotPrivateError(f"{what} may be written by its group (mode {stat.S_IMODE(facts.st_mode):04o})")


def _is_own_group(number: int) -> bool:
    """Whether a group has no member but this user: many systems give everyone such a group, and a umask of 002."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and user.pw_gid == number and set(group.gr_mem) <= {user.pw_name}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
