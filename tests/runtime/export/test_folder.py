"""Files that go into a folder all together or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from graft.errors import ArtifactError
from graft.runtime.export import folder
from graft.runtime.export.folder import write_files

NEW = {"a": b"new a", "b": b"new b", "c": b"new c"}


def content(place: Path) -> dict[str, str]:
    return {one.relative_to(place).as_posix(): one.read_text() for one in place.rglob("*") if one.is_file()}


def fail_at(monkeypatch: pytest.MonkeyPatch, module: object, name: str, number: int) -> None:
    """Make the call of this number fail as on a full disk."""
    real, calls = getattr(module, name), iter(range(100))

    def failing(*arguments: object) -> object:
        if next(calls) == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(module, name, failing)


def test_files_of_others_stay_and_old_ones_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "b").write_text("old b")
    assert write_files(tmp_path, NEW) == [tmp_path / name for name in NEW]
    assert content(tmp_path) == {"mine": "mine", "a": "new a", "b": "new b", "c": "new c"}


def test_folders_above_are_made(tmp_path: Path) -> None:
    write_files(tmp_path / "x" / "y", NEW)
    assert content(tmp_path) == {"x/y/a": "new a", "x/y/b": "new b", "x/y/c": "new c"}
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "x" / "y").stat().st_mode


@pytest.mark.parametrize("number", range(3))
def test_a_disk_that_is_full_at_any_file_leaves_no_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fail_at(monkeypatch, folder, "_write", number)
    with pytest.raises(ArtifactError) as error:
        write_files(tmp_path / "x" / "y", NEW)
    assert str(error.value) == (
        f"cannot write the folder '{tmp_path / 'x' / 'y'}': No space left on device; nothing was written"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("function", "most"), [("_write", 3), ("rename", 4)])
def test_a_failure_at_any_step_leaves_an_old_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, most: int
) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "b").write_text("old b")
    for number in range(most):
        with monkeypatch.context() as patch:
            fail_at(patch, os if function == "rename" else folder, function, number)
            with pytest.raises(ArtifactError) as error:
                write_files(tmp_path, NEW)
        assert str(error.value) == (
            f"cannot write the folder '{tmp_path}': No space left on device; it is as it was before"
        )
        assert content(tmp_path) == {"mine": "mine", "b": "old b"}
        assert sorted(one.name for one in tmp_path.iterdir()) == ["b", "mine"]


def test_a_file_of_that_name_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ArtifactError) as error:
        write_files(tmp_path / "x", NEW)
    assert str(error.value) == f"'{tmp_path / 'x'}' is there and is no folder; name another"


def test_a_folder_where_nothing_may_be_written_is_an_error_that_names_it() -> None:
    with pytest.raises(ArtifactError, match=r"^cannot write the folder '/proc/self/x': .*; nothing was written$"):
        write_files("/proc/self/x", NEW)
