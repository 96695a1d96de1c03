"""The shared libraries and headers of a vendor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from graft.plugins.c_libraries import link_flags, missing_header, missing_library, opened, unknown_symbols

LIBC = "libc.so.6"


def test_a_library_is_opened_once_or_the_reason_told() -> None:
    assert isinstance(opened(LIBC), ctypes.CDLL)
    assert opened(LIBC) is opened(LIBC)
    assert isinstance(opened("libnone.so.9"), str)


def test_the_first_library_that_is_missing_is_named() -> None:
    assert missing_library([]) is None
    assert missing_library([LIBC]) is None
    found = missing_library([LIBC, "libnone.so.9"])
    assert found is not None
    assert found.startswith("the library 'libnone.so.9' cannot be opened: libnone.so.9")


def test_a_header_that_is_not_found_is_named() -> None:
    assert missing_header([], ()) is None
    assert missing_header(["stdint.h"], ()) is None
    assert missing_header(["stdint.h", "no_such_vendor.h"], ()) == "the header 'no_such_vendor.h' is not found"


def test_a_header_is_found_by_its_flags_and_one_that_is_wrong_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "vendor.h").write_text("int vendor(void);\n")
    (tmp_path / "wrong.h").write_text("#error needs something else\n")
    assert missing_header(["vendor.h"], ()) is not None
    assert missing_header(["vendor.h"], (f"-I{tmp_path}",)) is None
    found = missing_header(["wrong.h"], (f"-I{tmp_path}",))
    assert found is not None
    assert "needs something else" in found


def test_without_a_compiler_no_header_can_be_included(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    assert missing_header(["stdint.h"], ()) == (
        "CC names the C compiler 'no-such-cc', which is not found; install it, or unset CC"
    )


def test_symbols_that_no_library_has_are_told() -> None:
    assert unknown_symbols(["malloc", "no_such_function"], [LIBC]) == ["no_such_function"]
    assert unknown_symbols(["malloc"], ["libnone.so.9"]) == ["malloc"]
    assert unknown_symbols([], []) == []


def test_a_linker_is_told_libraries_by_name_and_other_paths_as_they_are() -> None:
    libraries = ["libopenblas.so.0", "libm.so", "/opt/vendor/libx.so.1.2", "/opt/vendor/kernels.o", "libodd.so.a"]
    assert link_flags(libraries) == ("-lopenblas", "-lm", *libraries[2:])
