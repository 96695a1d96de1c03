"""The C example: built with make and a C compiler, it loads and runs an artifact without Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import graft

ROOT = Path(__file__).parents[2]
MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 6] x, float[6, 4] w) => (float[2, 4] y, int64[2] best) {
  h = MatMul(x, w)
  y = Softmax(h)
  best = ArgMax <axis = 1, keepdims = 0> (y)
}"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built outside the repository."""
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    build = tmp_path_factory.mktemp("build")
    done = subprocess.run(
        ["make", "-C", ROOT / "examples" / "c", f"BUILD={build}"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return build / "run"


def run(example: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([example, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_a_c_program_gives_what_python_gives(example: Path, tmp_path: Path) -> None:
    program = graft.compile(onnx.parser.parse_model(MODEL), ["llvm"], threads=1)
    program.save(tmp_path / "m.graft")
    x, w = (np.arange(np.prod(one.shape or ()), dtype=np.float32).reshape(one.shape) / 100 for one in program.inputs)
    y, best = program(x, w)
    done = run(example, tmp_path / "m.graft", 3)
    assert done.returncode == 0, done.stderr
    first, second, time = done.stdout.splitlines()
    name, *numbers = first.split()
    assert name == "y:"
    assert numbers[0] == "[2,4]"
    np.testing.assert_allclose([float(number) for number in numbers[1:]], y.reshape(-1), rtol=1e-4)
    assert second == f"best: [2] {best[0]} {best[1]}"
    assert time.endswith(" ms")


def test_the_program_of_the_documentation_runs(example: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    source = text.partition("The least program:")[2].partition("```c\n")[2].partition("```")[0]
    (tmp_path / "main.c").write_text(source, encoding="utf-8")
    include, library = ROOT / "runtime" / "native" / "include", example.parent / "libgraft_runtime.a"
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{include}", tmp_path / "main.c", library]
    subprocess.run([*command, "-o", tmp_path / "main", "-pthread", "-ldl", "-lm"], check=True, timeout=60)
    program = graft.compile(str(ROOT / "examples" / "digits" / "digits.onnx"), ["llvm"], threads=1)
    program.save(tmp_path / "digits.graft")
    expected = program(np.zeros((1, 1, 8, 8), np.float32)).reshape(-1)[0]
    done = run(tmp_path / "main", tmp_path / "digits.graft")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(float(done.stdout), expected, rtol=1e-4)


def test_a_c_program_tells_what_is_wrong(example: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none.graft"
    done = run(example, missing)
    assert (done.returncode, done.stderr) == (1, f"cannot open artifact '{missing}': No such file or directory\n")
    (tmp_path / "bad.graft").write_bytes(b"PK" * 100)
    done = run(example, tmp_path / "bad.graft")
    assert done.returncode == 1
    assert done.stderr.startswith("artifact is damaged: it does not end as an artifact does")
    assert run(example).returncode == 2
