"""Kernels kept on disk: found again by any process, never believed if damaged, bounded in size."""

import os
import stat
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graft
from graft.core.machine.target import target_named
from graft.plugins.codegen.constant_packing import Places, Strided
from graft.plugins.codegen.kernel_cache import Entry, KernelCache, kernel_key
from graft.runtime.system.cache_directory import cache_directory

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
two (float[4, 8] x) => (float[4, 8] z)
<float[8, 8] w = {WEIGHTS}>
{
  y = MatMul(x, w)
  z = Tanh(y)
}
"""
PLACES = {1: np.array([[3, 2, 1], [0, 4, 0]], np.int32), 3: Strided((4, 2), 1, (2, 4), (-1, 3)), 4: np.array([1, 0])}
ENTRY = Entry("kernel", b"object", PLACES)


def same(left: Entry | None, right: Entry) -> bool:
    assert left is not None
    assert (left.symbol, left.object) == (right.symbol, right.object)
    if right.places is None:
        return left.places is None
    assert left.places is not None
    assert left.places.keys() == right.places.keys()
    return all(
        left.places[number] == at if isinstance(at, Strided) else np.array_equal(left.places[number], at)
        for number, at in right.places.items()
    )


def model(scale: float) -> ir.Model:
    weights = ", ".join(str(float(value)) for value in (np.eye(8) * scale).reshape(-1))
    return ir.from_onnx_text(MODEL.replace("WEIGHTS", weights))


@pytest.mark.parametrize("places", [PLACES, {}, None])
def test_an_entry_is_read_as_it_was_written(tmp_path: Path, places: Places | None) -> None:
    entry = Entry("kernel", b"object", places)
    KernelCache(tmp_path).put("ab12", entry)
    assert same(KernelCache(tmp_path).get("ab12"), entry)
    assert KernelCache(tmp_path).get("ab13") is None


def test_a_damaged_entry_is_no_entry(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    cache.put("ab12", ENTRY)
    path = tmp_path / "ab" / "12"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place])
        assert cache.get("ab12") is None, f"cut at {place}"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        assert cache.get("ab12") is None, f"changed at {place}"
    path.write_bytes(whole)
    assert same(cache.get("ab12"), ENTRY)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(os, "link", refuse)
    KernelCache(tmp_path).put("ab12", ENTRY)
    assert list(tmp_path.glob("*/*")) == []


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = KernelCache(tmp_path / "file")
    cache.put("ab12", ENTRY)
    assert cache.get("ab12") is None
    assert cache.size() == (0, 0)


def test_entries_are_for_this_user_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        KernelCache(tmp_path / "new").put("ab12", ENTRY)
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "new/ab", "new/ab/12")]
    assert modes == [0o700, 0o700, 0o600]
    assert same(KernelCache(tmp_path / "new").get("ab12"), ENTRY)


@pytest.mark.parametrize("place", [".", "ab", "ab/12"])
def test_what_everybody_may_write_is_not_run(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = KernelCache(tmp_path)
    cache.put("ab12", ENTRY)
    mode = stat.S_IMODE((tmp_path / place).stat().st_mode)
    (tmp_path / place).chmod(mode | 0o022)
    assert cache.get("ab12") is None
    assert cache.get("ab12") is None
    (said,) = (record.message for record in caplog.records)
    assert said.startswith(f"the cache of kernels '{tmp_path}' is not used, for what is in it would be run: the f")
    assert said.endswith(f"may be written by everybody (mode {mode | 0o022:04o})")
    (tmp_path / place).chmod(mode)
    assert same(cache.get("ab12"), ENTRY)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to give files away")
@pytest.mark.parametrize("place", [".", "ab", "ab/12"])
def test_what_another_user_made_is_not_run(tmp_path: Path, place: str) -> None:
    cache = KernelCache(tmp_path)
    cache.put("ab12", ENTRY)
    os.chown(tmp_path / place, 65534, -1)
    assert cache.get("ab12") is None


def test_nothing_is_put_where_everybody_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    KernelCache(tmp_path).put("ab12", ENTRY)
    KernelCache(tmp_path / "deeper").put("ab12", ENTRY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["ab", "ab/12"])
def test_a_link_is_not_followed(tmp_path: Path, place: str) -> None:
    KernelCache(tmp_path / "other").put("ab12", ENTRY)
    (tmp_path / "cache" / place).parent.mkdir(parents=True)
    (tmp_path / "cache" / place).symlink_to(tmp_path / "other" / place)
    cache = KernelCache(tmp_path / "cache")
    assert cache.get("ab12") is None
    cache.clear()
    assert same(KernelCache(tmp_path / "other").get("ab12"), ENTRY)


def test_a_pipe_in_place_of_an_entry_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "ab" / "12", 0o600)
    assert KernelCache(tmp_path).get("ab12") is None


def test_a_directory_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    KernelCache(tmp_path).put("ab12", ENTRY)

    def refuse(*arguments: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert same(KernelCache(tmp_path).get("ab12"), ENTRY)


def test_a_cache_that_is_not_used_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(0o777)
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    np.testing.assert_allclose(graft.compile(model(2), ["llvm"])(x), np.tanh(2 * x), rtol=1e-5, atol=1e-6)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("home", ["", "relative"])
def test_a_program_is_compiled_without_a_home(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", home)
    assert cache_directory() is None
    x = np.ones((4, 8), np.float32)
    np.testing.assert_allclose(graft.compile(model(2), ["llvm"])(x), np.tanh(2 * x), rtol=1e-5, atol=1e-6)
    assert list(tmp_path.iterdir()) == []


def test_the_entries_used_longest_ago_go_first(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    for number in range(10):
        cache.put(f"ab{number}", ENTRY)
        os.utime(tmp_path / "ab" / str(number), (number, number))
    each = cache.size()[1] // 10
    assert cache.trim() == 0
    assert cache.get("ab0") is not None
    assert KernelCache(tmp_path, 5 * each).trim() == 6 * each
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["0", "7", "8", "9"]
    assert cache.clear() == 4
    assert cache.size() == (0, 0)


def test_a_key_depends_on_everything_that_code_depends_on() -> None:
    keys = [
        kernel_key("matmul", target_named("x86-64-v3"), "LLVM 22"),
        kernel_key("tanh", target_named("x86-64-v3"), "LLVM 22"),
        kernel_key("matmul", target_named("x86-64-v4"), "LLVM 22"),
        kernel_key("matmul", target_named("x86-64-v3"), "LLVM 23"),
        kernel_key("matmul", target_named("x86-64-v3"), "LLVM 22", Path(__file__)),
    ]
    assert len(set(keys)) == 5


def test_a_second_compilation_schedules_and_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    first = graft.compile(model(2), ["llvm"])
    assert KernelCache(tmp_path / "graft" / "kernels").size()[0] == 1

    def forbidden(*arguments: object) -> None:
        raise AssertionError("a kernel was scheduled")

    monkeypatch.setattr("graft.plugins.codegen.choices.schedule", forbidden)
    second = graft.compile(model(3), ["llvm"])
    np.testing.assert_allclose(first(x), np.tanh(2 * x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second(x), np.tanh(3 * x), rtol=1e-5, atol=1e-6)
    with pytest.raises(graft.errors.GraftError, match="a kernel was scheduled"):
        graft.compile(model(3), ["llvm"], cache=False, strict=True)


def test_nothing_is_kept_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graft.compile(model(2), ["llvm"], cache=False)
    assert list(tmp_path.iterdir()) == []


def test_a_user_whom_the_system_does_not_know_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home directory")))
    assert cache_directory() is None


def test_the_cache_is_under_the_users_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_directory() == Path("/home/somebody/.cache/graft")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_directory() == Path("/elsewhere/graft")
