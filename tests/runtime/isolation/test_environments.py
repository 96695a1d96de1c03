"""Environments for toolkits: made of lists that leave nothing open, where the user agreed, whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from graft.errors import ArgumentError, GraftError
from graft.runtime.isolation.environments import interpreter, with_interpreter
from graft.runtime.isolation.options import Isolation, isolations_of, locked


def wheel(folder: Path, version: str, text: str = "") -> None:
    name = f"made_up-{version}"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as file:
        file.writestr("made_up.py", f"VERSION = '{version}'\n{text}")
        file.writestr(f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: made_up\nVersion: {version}\n")
        file.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}.dist-info/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "1.0")
    wheel(folder, "2.0")
    return folder


def wanted(wheels: Path, version: str, install: bool = True) -> Isolation:
    return Isolation(requirements=[f"made_up=={version}"], install=install, wheels=str(wheels))


def version_in(python: str | None) -> str:
    assert python is not None
    command = [python, "-Ic", "import made_up; print(made_up.VERSION)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def made(cache: Path) -> list[Path]:
    return sorted(one for one in (cache / "graft" / "environments").iterdir() if one.is_dir())


def test_environments_are_made_once_where_the_user_agreed_and_found_again(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(GraftError, match=r"an environment with made_up==1.0 is wanted and was not made yet; agree"):
        interpreter(wanted(wheels, "1.0", install=False))
    pythons = [interpreter(wanted(wheels, version)) for version in ("1.0", "2.0")]
    assert [version_in(one) for one in pythons] == ["1.0", "2.0"]
    assert len(made(tmp_path / "cache")) == 2
    assert interpreter(wanted(wheels, "1.0", install=False)) == pythons[0]
    assert with_interpreter(wanted(wheels, "1.0"))["GRAFT_TOOLKIT_PYTHON"] == pythons[0]


def test_one_that_cannot_be_made_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(GraftError, match=r"the environment cannot be made: ERROR: .*made_up==3.0"):
        interpreter(wanted(wheels, "3.0"))
    assert made(tmp_path / "cache") == []


@pytest.mark.usefixtures("interruptible")
def test_one_that_is_interrupted_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        interpreter(wanted(wheels, "1.0"))
    assert made(tmp_path / "cache") == []


def test_one_that_was_killed_half_made_is_made_anew(wheels: Path, tmp_path: Path) -> None:
    python = interpreter(wanted(wheels, "1.0"))
    (folder,) = made(tmp_path / "cache")
    (folder / "made").unlink()
    next(folder.rglob("made_up.py")).unlink()
    with pytest.raises(GraftError, match="was not made yet"):
        interpreter(wanted(wheels, "1.0", install=False))
    assert interpreter(wanted(wheels, "1.0")) == python
    assert version_in(python) == "1.0"


def test_a_lock_file_stands_for_its_lines(tmp_path: Path) -> None:
    digest = f"--hash=sha256:{'0' * 64}"
    file = tmp_path / "npu.lock"
    file.write_text(f"# made by pip-compile\nnumpy==1.26.4 \\\n    {digest}\nonnx==1.16.1  # of the toolkit\n\n")
    assert locked([str(file)]) == [f"numpy==1.26.4 {digest}", "onnx==1.16.1"]


@pytest.mark.parametrize(
    "line", ["numpy>=1.26", "numpy", "--index-url=http://evil==1", "-e .==1", "numpy @ file:///tmp/x==1", "a==1 -i b"]
)
def test_a_requirement_that_leaves_something_open_is_refused(line: str) -> None:
    with pytest.raises(GraftError, match=r"leaves something open|neither name==version nor a file"):
        locked([line])


def test_an_artifact_keeps_requirements_and_starts_nothing_of_its_choice() -> None:
    how = Isolation(python=sys.executable, requirements="a==1", install=True, wheels="/w")
    assert how.requirements == ("a==1",)
    row = how.to_json()
    assert not {"python", "install", "wheels"} & row.keys()
    evil = {**row, "python": "/tmp/evil", "install": True, "wheels": "/tmp"}
    assert isolations_of({"isolation": {"npu": evil}})["npu"] == Isolation(requirements=("a==1",))


def test_a_sandbox_has_no_interpreter_of_its_own() -> None:
    with pytest.raises(ArgumentError, match="what is in a sandbox starts no other interpreter"):
        Isolation(sandbox=True, python=sys.executable)
