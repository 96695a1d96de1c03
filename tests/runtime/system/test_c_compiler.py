"""The system's C compiler: found, asked for its version, and run on a text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graft.errors import CompileError
from graft.runtime.system import c_compiler as cc

SAYS = """#!/bin/sh
case "$*" in
  *--version*) echo "fake 1.0"; echo "of nobody";;
  *-dumpmachine*) echo "riscv64-unknown-elf";;
  *-E*) printf '#define __GNUC__ 8\\n';;
  *) cat > /dev/null; echo "kernel.c:2: error: no such thing" >&2; exit 3;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A compiler that says that it is old, and refuses every text."""
    path = tmp_path / "fake-cc"
    path.write_text(SAYS)
    path.chmod(0o755)
    monkeypatch.setenv("CC", f"{path} -pipe")
    return (str(path), "-pipe")


def test_the_command_that_the_environment_names_comes_first(fake: tuple[str, ...]) -> None:
    assert cc.c_compiler() == fake


def test_the_first_of_the_usual_ones_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError) as caught:
        cc.c_compiler()
    assert str(caught.value) == "there is no C compiler (cc, gcc, clang); install one, or name it in CC"
    for name in ("clang", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        os.chmod(tmp_path / name, 0o755)
        assert cc.c_compiler() == (name,)


def test_a_named_compiler_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc -O2")
    with pytest.raises(CompileError) as caught:
        cc.c_compiler()
    assert str(caught.value) == "CC names the C compiler 'no-such-cc', which is not found; install it, or unset CC"


def test_what_it_says_of_itself_is_read(fake: tuple[str, ...]) -> None:
    assert cc.version_of(fake) == "fake 1.0"
    assert cc.machine_of(fake) == "riscv64"
    assert cc.family_of(fake) == ("GCC", 8)
    assert cc.why_too_old(fake) == (
        f"the C compiler '{' '.join(fake)}' is GCC 8; GCC 9 or newer is needed (C11, and __builtin_convertvector for "
        "vectors); install one, or name another compiler in CC"
    )


def test_a_command_that_is_none_says_nothing(tmp_path: Path) -> None:
    missing = (str(tmp_path / "none"),)
    assert (cc.version_of(missing), cc.machine_of(missing), cc.family_of(missing)) == ("", "", None)
    assert cc.why_too_old(missing) is None


def test_a_refusal_quotes_the_compiler_and_the_line_and_names_the_function(fake: tuple[str, ...]) -> None:
    text = '#line 1 "other.c"\nint a;\n#line 1 "kernel.c"\nint x;\n  wrong;\n#line 1 "last.c"\nint z;\n'
    with pytest.raises(CompileError) as caught:
        cc.compiled(text, "region", ())
    assert str(caught.value) == (
        f"the C compiler '{' '.join(fake)}' refused the code of 'region' (exit 3): "
        "kernel.c:2: error: no such thing\nthe line is: wrong;"
    )
    assert caught.value.facts["function"] == "kernel"


@pytest.mark.parametrize("text", ["int x;\n", '#line 1 "kernel.c"\nint x;\n'])
def test_a_place_that_the_text_does_not_have_is_not_quoted(fake: tuple[str, ...], text: str) -> None:
    with pytest.raises(CompileError) as caught:
        cc.compiled(text, "region", ())
    assert "the line is" not in str(caught.value)
    assert caught.value.facts["function"] == "region"


def test_a_compiler_that_writes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quiet"
    path.write_text("#!/bin/sh\ncat > /dev/null\n")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    with pytest.raises(CompileError, match=r"refused the code of 'f' \(no object file\)"):
        cc.compiled("int x;", "f", ())


def test_files_in_a_folder_are_compiled_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "touching"
    path.write_text('#!/bin/sh\ntouch "$1"\n')
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    cc.run_in(tmp_path, ["made.o"], "refused")
    assert (tmp_path / "made.o").exists()
