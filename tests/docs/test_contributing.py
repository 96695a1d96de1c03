"""CONTRIBUTING.md: its recipes run, as a newcomer follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graft.core.importer.load import load
from graft.core.operators.definition.table import OPERATORS
from graft.datatypes.arrays import decode, encode
from graft.datatypes.registry import DatatypeRegistry
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell
from tests.test_import_rule import ORDER

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


TWICE = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) { a = Abs(x) y = Relu(a) }'
)


def test_the_recipes_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    monkeypatch.setattr(OPERATORS, "_rows", dict(OPERATORS._rows))  # what the recipe adds goes with it
    names: dict[str, Any] = {"__name__": "contributing"}
    for block in blocks(PAGE):
        if block.language == "python":
            execute(block, "CONTRIBUTING.md", names)
        else:
            shell(block.text)
    assert (tmp_path / "graft-spindle").is_dir()
    for row in names["graft_operators"]():
        OPERATORS.admit(row, "a plugin")
    registry = DatatypeRegistry()
    for datatype in names["graft_datatypes"]():
        registry.admit(datatype, "a plugin")
    code = encode(np.float32([1.5]), "custom[top]16", registry=registry)
    assert decode(code, "custom[top]16", registry=registry) == [1.5]
    (one,) = names["graft_passes"]("import")
    model = load(TWICE)
    assert [one.run(model), one.run(model)] == [True, False]


def test_the_order_of_the_folders_is_the_one_that_is_tested() -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith("    errors <- "))
    assert tuple(name.strip() for name in line.split("<-"))[:-1] == ORDER
