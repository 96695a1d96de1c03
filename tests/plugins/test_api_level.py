"""The interface keeps its promise: a plugin of level N runs on N + 1, and what level N has, it keeps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import graft
from graft.plugins import hooks
from graft.plugins.backend import API_LEVEL
from graft.plugins.registry import declaration
from graft.plugins.registry.manager import PluginManager

OLD = Path(__file__).with_name("level_1.txt")
GOLDEN = Path(__file__).parents[1] / "golden"
MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}> { t = MatMul(x, w) r = Relu(t) y = Neg(r) }"""
CLASSES = (graft.Backend, graft.JsonBackend, graft.CSourceBackend, graft.TensorIrBackend, graft.Module, graft.Reject)


@pytest.mark.parametrize("level", [API_LEVEL, API_LEVEL + 1])
def test_a_plugin_of_level_1_runs_on_this_level_and_on_the_next(
    level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declaration, "SUPPORTED_API_LEVELS", range(1, level + 1))
    monkeypatch.setattr(declaration, "API_LEVEL", level)
    path = tmp_path / "old.py"
    path.write_text(OLD.read_text(encoding="utf-8"), encoding="utf-8")
    manager = PluginManager()
    manager.load_file(path)
    program = graft.compile(
        onnx.parser.parse_model(MODEL), ["old", "reference"], manager=manager, strict=True, cache=False
    )
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    weights = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    assert program(x).tolist() == (-np.maximum(x @ weights, 0)).tolist()
    assert [module.kind for module in program.description.modules] == ["json:old"]


def interface() -> Iterator[str]:
    """Give what plugins override, call and implement: names and parameters, with ``=`` where one may be left out."""
    for name in sorted(graft.__all__):
        yield f"graft.{name}"
    for kind in CLASSES:
        for name, member in sorted(inspect.getmembers(kind)):
            if not name.startswith("_"):
                yield f"{kind.__name__}.{name}{_parameters(member) if callable(member) else ''}"
    for name, hook in sorted(vars(hooks).items()):
        if name.startswith("graft_"):
            yield f"{name}{_parameters(hook)}"


def _parameters(function: Callable[..., Any]) -> str:
    rows = inspect.signature(function).parameters.values()
    return f"({', '.join(row.name + ('=' if row.default is not row.empty else '') for row in rows)})"


def test_what_a_level_has_it_keeps() -> None:
    # Adding is allowed, arguments too if they may be left out. What goes, or changes, is a new level with a file of
    # its own and a line in docs/plugins.md.
    now = list(interface())
    names = {line.rstrip(")"): line for line in now}
    for line in (GOLDEN / f"plugin_api_{API_LEVEL}.txt").read_text(encoding="utf-8").splitlines():
        extended = next((one for start, one in names.items() if start.startswith(line.rstrip(")") + ", ")), "")
        more = extended[len(line) - 1 :].strip("(), ").split(", ")
        assert line in now or (extended and all(one.endswith("=") for one in more)), f"{line} is gone, or has changed"


def test_every_level_has_its_line_in_the_changelog_of_the_interface() -> None:
    page = (OLD.parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    for level in range(1, API_LEVEL + 1):
        assert f"\n| {level} | " in page.partition("| level | what changed |")[2]
