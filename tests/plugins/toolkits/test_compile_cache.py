"""What vendors' compilers made is found again by content, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.plugins.codegen.kernel_cache import KernelCache
from graft.plugins.toolkits.compile_cache import remembered


def test_the_same_parts_are_compiled_once(tmp_path: Path) -> None:
    made: list[bytes] = []

    def make() -> bytes:
        made.append(b"blob %d" % len(made))
        return made[-1]

    assert [remembered(tmp_path, [b"a", b"b"], make) for _ in range(2)] == [b"blob 0", b"blob 0"]
    assert remembered(tmp_path, [b"ab", b""], make) == b"blob 1"
    assert remembered(None, [b"a", b"b"], make) == b"blob 2"
    assert KernelCache(tmp_path / "kernels").size()[0] == 2


def test_what_is_damaged_is_made_again_and_what_fails_is_not_kept(tmp_path: Path) -> None:
    remembered(tmp_path, [b"a"], lambda: b"right")
    (file,) = [one for one in (tmp_path / "kernels").rglob("*") if one.is_file()]
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert remembered(tmp_path, [b"a"], lambda: b"right") == b"right"

    def fail() -> bytes:
        raise RuntimeError("licence")

    with pytest.raises(RuntimeError, match="licence"):
        remembered(tmp_path, [b"b"], fail)
    assert KernelCache(tmp_path / "kernels").size()[0] == 1
