"""Files are written whole or not at all, and nothing that is no regular file is replaced."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import graft.runtime.system.files as files
from graft.errors import ArtifactError, GraftError
from graft.runtime.system.files import is_standard_output, make_folder, remove_abandoned, write, writing

CONTENT = b"0123456789" * 10


@pytest.fixture(params=["unnamed", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With files that have no name, and on a file system that does not know them."""
    if request.param == "named":
        monkeypatch.setattr(files, "_UNNAMED", 0)
    return str(request.param)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse bytes behind ``size`` in any file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
@pytest.mark.usefixtures("kind")
def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path, mask, expected):
    with umask(mask):
        write(tmp_path / "a", CONTENT, "report")
    assert mode(tmp_path / "a") == expected
    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("before", [0o600, 0o640, 0o644, 0o755, 0o444])
@pytest.mark.usefixtures("kind")
def test_a_file_keeps_its_mode(tmp_path, before):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(before)
    if not os.access(path, os.W_OK):
        pytest.skip("needs to be root to write a read-only file")
    write(path, CONTENT, "report")
    assert mode(path) == before
    assert path.read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to give files away")
@pytest.mark.usefixtures("kind")
def test_a_file_keeps_its_owner_and_group(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 1234, 4321)
    write(path, CONTENT, "report")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


@pytest.mark.usefixtures("kind")
def test_a_group_that_cannot_be_kept_gets_the_rights_of_everybody(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o664)
    old = path.stat()
    monkeypatch.setattr(os, "fchown", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no")))
    facts = os.stat_result((*old[:4], old.st_uid + 1, *old[5:]))
    monkeypatch.setattr(files, "_place_of", lambda name: files._Place(name, old=facts))
    write(path, CONTENT, "report")
    assert mode(path) == 0o644


@pytest.mark.usefixtures("kind")
def test_extended_attributes_stay(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    write(path, CONTENT, "report")
    assert os.getxattr(path, "user.note") == b"mine"


@pytest.mark.usefixtures("kind")
def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "target").write_bytes(b"old")
    (tmp_path / "middle").symlink_to("there/target")
    (tmp_path / "link").symlink_to(tmp_path / "middle")
    write(tmp_path / "link", CONTENT, "report")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert (tmp_path / "there" / "target").read_bytes() == CONTENT


@pytest.mark.usefixtures("kind")
def test_a_link_to_nothing_makes_its_target(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write(tmp_path / "link", CONTENT, "report")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == CONTENT


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(GraftError) as caught:
        write(tmp_path / "a", CONTENT, "report")
    assert str(caught.value) == (
        f"cannot write report '{tmp_path / 'a'}': Too many levels of symbolic links; 'a' is as it was before"
    )


def test_another_hard_link_keeps_the_old_content(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    os.link(tmp_path / "a", tmp_path / "b")
    write(tmp_path / "a", CONTENT, "report")
    assert (tmp_path / "b").read_bytes() == b"old"


def test_a_device_is_written_and_stays():
    before = os.stat("/dev/null")
    write("/dev/null", CONTENT, "report")
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


def test_a_link_to_a_device_stays(tmp_path):
    (tmp_path / "nothing").symlink_to("/dev/null")
    write(tmp_path / "nothing", CONTENT, "report")
    assert os.readlink(tmp_path / "nothing") == "/dev/null"


def test_a_full_device_is_an_error():
    with pytest.raises(ArtifactError) as caught:
        write("/dev/full", CONTENT, "artifact", ArtifactError)
    assert str(caught.value) == (
        "cannot write artifact '/dev/full': No space left on device; a part of it may have been written"
    )
    assert caught.value.path == "/dev/full"


def test_a_pipe_with_a_name_is_written_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe, CONTENT, "report")
    reader.join()
    assert got == [CONTENT]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


SCRIPT = (
    "import sys; from graft.runtime.system.files import write; print('before'); write(sys.argv[1], 'text', 'report')"
)


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_gets_the_content_behind_what_was_printed(tmp_path, path):
    piped = subprocess.run([sys.executable, "-c", SCRIPT, path], stdout=subprocess.PIPE, check=True)
    assert piped.stdout == b"before\ntext"
    with (tmp_path / "file").open("wb") as file:
        file.write(b"first\n")
        file.flush()
        inode = os.fstat(file.fileno()).st_ino
        subprocess.run([sys.executable, "-c", SCRIPT, path], stdout=file, check=True)
    assert (tmp_path / "file").read_bytes() == b"first\nbefore\ntext"
    assert (tmp_path / "file").stat().st_ino == inode


def test_standard_output_is_known_by_any_name(tmp_path):
    script = (
        "import sys; from graft.runtime.system.files import is_standard_output as f; "
        "print([f(p) for p in sys.argv[1:]])"
    )
    with (tmp_path / "file").open("wb") as file:
        names = ["/dev/stdout", tmp_path / "file", tmp_path / "other", "/dev/null"]
        subprocess.run([sys.executable, "-c", script, *names], stdout=file, check=True)
    assert (tmp_path / "file").read_text() == "[True, True, False, False]\n"
    assert not is_standard_output(tmp_path / "none")


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_full_disk_leaves_what_was_there_whichever_byte_fails(tmp_path, old):
    path = tmp_path / "a"
    if old is not None:
        path.write_bytes(old)
    for size in range(0, len(CONTENT), 9):
        with largest_file(size), pytest.raises(GraftError) as caught:
            write(path, CONTENT, "report")
        left = "'a' is as it was before" if old else "nothing was written"
        assert str(caught.value) == f"cannot write report '{path}': File too large; {left}"
        assert [one.read_bytes() for one in tmp_path.iterdir()] == ([old] if old else [])
    write(path, CONTENT, "report")
    assert path.read_bytes() == CONTENT


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("call", ["fchmod", "fsync", "replace", "link", "flock"])
def test_a_failing_call_leaves_what_was_there(tmp_path, monkeypatch, call):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.fcntl if call == "flock" else os, call, fail)
    try:
        write(path, CONTENT, "report")
    except GraftError as error:
        assert str(error) == f"cannot write report '{path}': Input/output error; 'a' is as it was before"
        assert path.read_bytes() == b"old"
    else:
        assert call in ("flock", "link")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.usefixtures("kind")
def test_an_exception_of_the_writer_leaves_what_was_there(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def interrupted() -> None:
        with writing(tmp_path / "a", "report") as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", "it is a folder; '' is as it was before"),
        ("folder", "it is a folder; 'folder' is as it was before"),
        ("none/a", "there is no folder '{}/none', make it first; nothing was written"),
        ("file/a", "'{}/file' is no folder; nothing was written"),
        ("away", "there is no folder '{}/none', make it first; 'away' is as it was before"),
    ],
)
def test_a_path_that_cannot_be_written_is_an_error(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "away").symlink_to("none/a")
    path = tmp_path / name
    with pytest.raises(GraftError) as caught:
        write(path, CONTENT, "report")
    expected = reason.format(tmp_path).replace("''", f"'{path.name}'")
    assert str(caught.value) == f"cannot write report '{path}': {expected}"


UNPRIVILEGED = """
import os, sys
from graft.runtime.system.files import write
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
try:
    write(sys.argv[1], "new", "report")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("which", ["folder", "file"])
def test_a_read_only_folder_or_file_is_an_error(tmp_path, which):
    folder = Path("/tmp") / f"graft-test-{os.getpid()}-{which}"  # all folders above it may be searched by anybody
    folder.mkdir()
    try:
        (folder / "a").write_bytes(b"old")
        folder.chmod(0o555 if which == "folder" else 0o777)
        (folder / "a").chmod(0o666 if which == "folder" else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, str(folder / "a")], capture_output=True, text=True, check=True
        )
        reason = "Permission denied" if which == "folder" else "it is there and may not be written"
        assert done.stdout == (f"GraftError cannot write report '{folder / 'a'}': {reason}; 'a' is as it was before\n")
        assert (folder / "a").read_bytes() == b"old"
        assert os.listdir(folder) == ["a"]
    finally:
        folder.chmod(0o755)
        (folder / "a").unlink()
        folder.rmdir()


KILLED = """
import os, sys
import graft.runtime.system.files as files
if sys.argv[2] == "named":
    files._UNNAMED = 0
with files.writing(sys.argv[1], "report") as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["unnamed", "named"])
def test_a_killed_writer_leaves_nothing_that_stays(tmp_path, monkeypatch, how):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"ready\n"
    monkeypatch.setattr(files, "STALE_SECONDS", 0.0)
    assert remove_abandoned(tmp_path) == 0, "a file that is being written was taken for abandoned"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert path.read_bytes() == b"old"
    monkeypatch.setattr(files, "STALE_SECONDS", 60.0)
    assert remove_abandoned(tmp_path) == 0, "a young file may belong to a writer that has not locked it yet"
    monkeypatch.setattr(files, "STALE_SECONDS", 0.0)
    if how == "unnamed" and not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no unnamed files")
    assert len(os.listdir(tmp_path)) == (2 if how == "named" else 1)
    write(path, CONTENT, "report")
    assert os.listdir(tmp_path) == ["a"]


def test_only_own_parts_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STALE_SECONDS", 0.0)
    for name in (".graft-notes.txt", "a.part", ".graft"):
        (tmp_path / name).touch()
    (tmp_path / ".graft-1.part").symlink_to("a.part")
    os.mkfifo(tmp_path / ".graft-2.part")
    (tmp_path / ".graft-3.part").mkdir()
    before = sorted(os.listdir(tmp_path))
    assert remove_abandoned(tmp_path) == 0
    assert sorted(os.listdir(tmp_path)) == before
    (tmp_path / ".graft-4.part").touch()
    os.utime(tmp_path / ".graft-4.part", (time.time() - 5, time.time() - 5))
    assert remove_abandoned(tmp_path) == 1
    assert sorted(os.listdir(tmp_path)) == before


def test_several_writers_leave_one_whole_file(tmp_path):
    texts = [bytes([65 + number]) * 5000 for number in range(8)]
    threads = [threading.Thread(target=write, args=(tmp_path / "a", text, "report")) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_bytes() in texts
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    assert make_folder(tmp_path / "new" / "folder", "outputs") == tmp_path / "new" / "folder"
    with pytest.raises(GraftError) as caught:
        make_folder(tmp_path / "file", "outputs")
    assert str(caught.value) == (
        f"cannot make the folder '{tmp_path / 'file'}' for outputs: there is a file of this name; name another"
    )
    with pytest.raises(GraftError) as caught:
        make_folder(tmp_path / "file" / "a", "outputs")
    assert str(caught.value) == (
        f"cannot make the folder '{tmp_path / 'file' / 'a'}' for outputs: Not a directory; name another"
    )
