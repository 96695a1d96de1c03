"""What is read back to be executed comes from folders and files that nobody else can change."""

import os
import stat
from pathlib import Path

import pytest

from graft.runtime.system.private import NotPrivateError, inner_folder, private_folder, read_private, why_not_private

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to give files away")


def opened(path: Path, *, make: bool = False) -> None:
    with private_folder(path, make=make):
        pass


def test_folders_are_made_for_this_user_only(tmp_path):
    opened(tmp_path / "a" / "b", make=True)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]


def test_a_folder_is_opened_whatever_others_may_read(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    opened(tmp_path / "a")


def test_a_missing_folder_is_no_refusal(tmp_path):
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "a")
    assert why_not_private(tmp_path / "a") is None


@pytest.mark.parametrize(("mode", "who"), [(0o777, "everybody"), (0o1777, "everybody"), (0o702, "everybody")])
def test_a_folder_that_everybody_may_write_is_refused(tmp_path, mode, who):
    folder = tmp_path / "a"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(NotPrivateError) as caught:
        opened(folder)
    assert str(caught.value) == f"the folder '{folder}' may be written by {who} (mode {mode:04o})"
    assert why_not_private(folder) == str(caught.value)
    assert why_not_private(folder / "database") == str(caught.value)


def test_a_folder_below_one_that_everybody_may_write_is_refused(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a").chmod(0o777)
    with pytest.raises(NotPrivateError, match="a' may be written by everybody"):
        opened(tmp_path / "a" / "b")
    (tmp_path / "a").chmod(0o1777)
    opened(tmp_path / "a" / "b")


def test_a_folder_of_a_group_with_others_in_it_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    folder.mkdir()
    folder.chmod(0o770)
    monkeypatch.setattr("graft.runtime.system.private._is_own_group", lambda number: False)
    with pytest.raises(NotPrivateError) as caught:
        opened(folder)
    assert str(caught.value) == f"the folder '{folder}' may be written by its group (mode 0770)"
    monkeypatch.setattr("graft.runtime.system.private._is_own_group", lambda number: True)
    opened(folder)


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, -1)
    with pytest.raises(NotPrivateError) as caught:
        opened(folder)
    assert str(caught.value).startswith(f"the folder '{folder}' belongs to another user (")


def test_a_link_leads_to_what_is_checked(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    opened(tmp_path / "link")
    (tmp_path / "a").chmod(0o777)
    with pytest.raises(NotPrivateError):
        opened(tmp_path / "link")


def test_an_inner_folder_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "link").symlink_to("../b")
    with private_folder(tmp_path / "a") as folder, pytest.raises(OSError, match=r"Not a directory|symbolic"):
        inner_folder("link", folder).__enter__()


def test_a_private_file_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "file").chmod(0o644)
    with private_folder(tmp_path) as folder:
        assert read_private("file", folder) == b"content"
    assert why_not_private(tmp_path / "file") is None


def test_what_is_no_private_file_is_refused(tmp_path):
    (tmp_path / "open").write_bytes(b"content")
    (tmp_path / "open").chmod(0o666)
    (tmp_path / "link").symlink_to("open")
    os.mkfifo(tmp_path / "pipe")
    with private_folder(tmp_path) as folder:
        with pytest.raises(NotPrivateError, match="the file 'open' may be written by everybody"):
            read_private("open", folder)
        with pytest.raises(NotPrivateError, match="'pipe' is no regular file"):
            read_private("pipe", folder)
        with pytest.raises(OSError, match="symbolic links"):
            read_private("link", folder)
    assert why_not_private(tmp_path / "open") == (
        f"the file '{tmp_path / 'open'}' may be written by everybody (mode 0666)"
    )


@as_root
def test_a_file_of_another_user_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    os.chown(tmp_path / "file", 65534, -1)
    with private_folder(tmp_path) as folder, pytest.raises(NotPrivateError, match="belongs to another user"):
        read_private("file", folder)


def test_no_descriptor_stays_open(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        why_not_private(tmp_path / "a")
        why_not_private(tmp_path / "none" / "file")
        with private_folder(tmp_path):
            pass
    assert len(os.listdir("/proc/self/fd")) == before
