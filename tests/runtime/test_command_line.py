"""`python -m graft.runtime`, and `graft run` without click: NumPy and the native library are all that they need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import graft
from graft.runtime.__main__ import main

BLOCKED = ("click", "rich", "onnx", "onnx_ir", "llvmlite", "pluggy", "ml_dtypes")
BLOCKER = f"""
import runpy, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
MODEL = '<ir_version: 10, opset_import: ["" : 21]> g (float[2,2] x) => (float[2,2] y) { r = Relu(x) y = Neg(r) }'


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "m.graft"
    graft.compile(onnx.parser.parse_model(MODEL), "llvm", threads=1).save(path)
    return path


def bare(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a module where nothing but NumPy can be imported."""
    words = [str(argument) for argument in arguments]
    return subprocess.run([sys.executable, "-c", BLOCKER, *words], capture_output=True, text=True, timeout=120)


def test_an_artifact_runs_with_numpy_alone(artifact: Path, tmp_path: Path) -> None:
    done = bare("graft.runtime", artifact, "--input", "x=[[-1, 2], [3, -4]]", "--output", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["outputs"]
    assert (row["name"], row["dtype"], row["shape"], row["min"]) == ("y", "float32", [2, 2], -3)
    np.testing.assert_array_equal(np.load(row["file"]), [[0, -2], [-3, 0]])


def test_graft_run_works_without_click(artifact: Path) -> None:
    done = bare("graft", "run", artifact, "--input", "x=[[-1, 2], [3, -4]]")
    assert (done.returncode, done.stdout) == (0, "y: float32[2,2]  min -3, mean -1.25, max -0\n")


def test_other_verbs_say_that_they_need_click(artifact: Path) -> None:
    done = bare("graft", "inspect", artifact)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "graft: the command line needs click: pip install click; without it, graft run FILE.graft runs an artifact, "
        "as python -m graft.runtime FILE.graft does\n"
    )


def test_the_include_folder_has_the_header(capsys: pytest.CaptureFixture[str]) -> None:
    assert (Path(graft.runtime.include_dir()) / "graft" / "runtime.h").is_file()
    assert main(["--include-dir"]) == 0
    assert capsys.readouterr().out == f"{graft.runtime.include_dir()}\n"
    assert main(["--include-dir", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"include_dir": graft.runtime.include_dir()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no artifact is given; write python -m graft.runtime FILE.graft"),
        (["--input", "x"], "argument --input: 'x' is not an input; write NAME=@FILE.npy or NAME=[1, 2]"),
        (["--threads", "0"], "argument --threads: '0' is not a whole number of at least 1"),
        (["--threads", "two"], "argument --threads: 'two' is not a whole number of at least 1"),
        (["--seed", "-1"], "argument --seed: '-1' is not a whole number of at least 0"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)  # fmt: skip
def test_wrong_options_are_usage_errors_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    message += "; --help shows the options"
    assert capsys.readouterr().err == f"python -m graft.runtime: {message}\n"
    with pytest.raises(SystemExit) as caught:
        main([*words, "--json"])
    assert caught.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"] == {"type": "UsageError", "message": message}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "x=@none.npy"], "input 'x': cannot read 'none.npy': No such file or directory"),
        (["--input", "z=[1]"], "no input 'z'; the program takes 'x'"),
        (["--input", "x=[1]", "--input", "x=[2]"], "input 'x' is given twice; give it once"),
        (
            ["--output", "/dev/null/x"],
            "cannot make the folder '/dev/null/x' for outputs: Not a directory; name another",
        ),
    ],
)
def test_failures_are_told_in_one_line(
    artifact: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main([str(artifact), *words]) == 1
    assert capsys.readouterr().err == f"python -m graft.runtime: {message}\n"


def test_a_missing_file_is_told_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(tmp_path / "none.graft"), "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "ArtifactError"
    assert error["message"].endswith("none.graft': No such file or directory")
