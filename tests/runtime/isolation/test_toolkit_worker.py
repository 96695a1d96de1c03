"""The worker's side of a toolkit: what it needs, and that values travel as they are."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest

from graft.runtime.isolation import toolkit_worker
from graft.runtime.isolation.toolkit import Toolkit

MODULE = Path(__file__).parents[2] / "plugins" / "toolkits" / "made_up_toolkit.py"


@pytest.fixture(scope="module")
def toolkit() -> Toolkit:
    return Toolkit("npu", MODULE, sys.executable)


def test_the_worker_is_of_python_3_9_and_imports_nothing_that_is_not_of_it() -> None:
    tree = ast.parse(Path(toolkit_worker.__file__).read_text(), feature_version=(3, 9))
    names = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}  # fmt: skip
    assert {str(name).partition(".")[0] for name in names} - sys.stdlib_module_names == {"numpy"}


VALUES = [
    None, True, -(1 << 70), 0.1, float("inf"), "ä\n", b"\0bytes", [1, [2.5, None]], {"of": {"bytes": 0}, "x": b"y"},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_went(toolkit: Toolkit, value: object) -> None:
    assert toolkit.call("echo", value) == value


def test_arrays_come_back_as_they_went(toolkit: Toolkit) -> None:
    steps = np.arange(24, dtype="int16").reshape(2, 3, 4)
    for array in (steps, steps.T, steps[:, ::2], steps[:0], np.array(3.5), np.array(7, ">i4"), steps > 3):
        found = toolkit.call("echo", array)
        np.testing.assert_array_equal(found, array)
        assert found.shape == np.shape(array)
        assert found.dtype == np.asarray(array).dtype.newbyteorder("=")
