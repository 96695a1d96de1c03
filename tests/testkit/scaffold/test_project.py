"""A project of each kind: it is written whole, it is short, and it passes its own tests in a clean environment."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from setuptools.glob import glob

from graft.core.operators.definition.build import index
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Binary, Block, Buffer, For, Function, Load, Store, Type, Variable
from graft.errors import GraftError
from graft.runtime import include_dir
from graft.testkit.scaffold.project import KINDS, contents, write_project
from tests.testkit.clean import installed, outcome_of
from tests.testkit.lines import python_lines

COMMON = {
    ".github/workflows/ci.yml", ".gitignore", "README.md", "pyproject.toml", "graft_npu9/__init__.py",
    "graft_npu9/backend.py", "tests/ledger.txt", "tests/test_conformance.py",
}  # fmt: skip


def test_a_first_backend_has_ten_lines() -> None:
    assert python_lines(contents("npu9", "json")["graft_npu9/backend.py"]) == 10


def test_the_test_of_a_project_has_three_lines() -> None:
    assert contents("npu9", "json")["tests/test_conformance.py"].count("\n") == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_is_whole(kind: str) -> None:
    project = contents("npu9", kind)
    assert project.keys() >= COMMON
    about = tomllib.loads(project["pyproject.toml"])
    assert about["project"]["entry-points"]["graft"] == {"npu9": "graft_npu9.backend"}
    assert about["tool"]["graft"] == {"template": 1, "kind": kind}
    for path, text in project.items():
        assert not re.search(r"@(name|package|class|dashed|kind)@", path + text), path
        if path.endswith(".py"):
            compile(text, path, "exec")


def test_every_template_is_in_the_distribution() -> None:
    root = Path(__file__).parents[3]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folder = root / "testkit" / "scaffold"
    found = {path for one in patterns["graft.testkit.scaffold"] for path in glob(str(folder / one), recursive=True)}
    assert {str(path) for path in (folder / "templates").rglob("*") if path.is_file()} <= found


def test_a_native_project_has_the_headers_of_the_runtime() -> None:
    project = contents("npu9", "native")
    for header in ("runtime.h", "dlpack.h", "device.h"):
        assert project[f"graft_npu9/native/graft/{header}"] == (Path(include_dir()) / "graft" / header).read_text()
    assert "graft" not in tomllib.loads(project["pyproject.toml"])["build-system"]["requires"]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("Npu", "json", "'Npu' is no name of a backend; give lower-case letters, digits and '_', as in npu"),
        ("import", "json", "'import' is no name of a backend; give lower-case letters, digits and '_', as in npu"),
        ("llvm", "json", "'llvm' is a backend of Graft's own; give another name"),
        (
            "npu",
            "fpga",
            "there is no kind of backend 'fpga'; give one of json, c-source, native, rewrite, tensor-ir",
        ),
    ],
)
def test_what_cannot_be_a_project_is_told(name: str, kind: str, said: str) -> None:
    with pytest.raises(GraftError) as caught:
        contents(name, kind)
    assert caught.value.message == said


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(GraftError, match="is there already; give a new folder with --output"):
        write_project("npu9", "json", tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_the_emitted_language_divides_and_compares_as_tensor_ir_does() -> None:
    project = contents("npu9", "tensor-ir")
    emitter: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    exec(project["graft_npu9/emitter.py"], emitter)
    exec(project["graft_npu9/runtime.py"], runtime)
    kinds = ["int64", "int64", "float32", "float32"]
    (a, b, x, y), results = (
        [Buffer(name, kind, (index(7),)) for name, kind in zip(names, kinds, strict=True)] for names in ("abxy", "qrlm")
    )
    i = Variable("i", Type("int64"))
    stores = [
        Store(result, (i,), Binary(operator, Load(left, (i,)), Load(right, (i,))))
        for result, operator, left, right in zip(
            results, ("div", "mod", "min", "max"), (a, a, x, x), (b, b, y, y), strict=True
        )
    ]
    function = Function("f", (a, b, x, y, *results), 4, For(i, index(7), "serial", Block(tuple(stores))))
    whole = np.array([[7, -7, 7, -7, 5, -1, 0], [2, 2, -2, -2, 0, 4, -3]])
    floats = np.array([[1, np.nan, 1, np.nan, -1, np.inf, 0], [2, 1, np.nan, np.nan, -2, np.nan, 5]], np.float32)
    expected = run_function(function, [*whole, *floats])
    (found,) = runtime["load"]("m", emitter["module_bytes"]([function]), {}).values()
    for one, other in zip(found([*whole, *floats]), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_project_passes_its_own_tests_as_it_is(kind: str, tmp_path: Path) -> None:
    write_project("npu9", kind, tmp_path / "project")
    python = installed(tmp_path / "project", tmp_path / "environment")
    printed = outcome_of(python, tmp_path / "project")
    assert re.search(r"graft: npu9: level 3 · (\d+)/\1\b", printed), printed
