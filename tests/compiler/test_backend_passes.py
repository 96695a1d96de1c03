"""Passes that a backend brings: they run where it takes part, and what is wrong with them names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import pytest

import graft
from graft.errors import PluginError

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { t = Neg(x) y = Abs(t) }'
)


@dataclass(frozen=True)
class Pass:
    """A pass that does what it is told."""

    does: Callable[[ir.Model], object]
    name: str = "bring-relu"

    def run(self, model: ir.Model) -> Any:
        return self.does(model)


class Npu(graft.Backend):
    """A backend of one operator."""

    name = "npu"

    def __init__(self, found: Any) -> None:
        self.found = found

    def passes(self) -> Sequence[Any]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def supports(self, node: Any) -> bool:
        return node.op_type == "Relu"

    def compile(self, region: Any, options: Any) -> Any:
        raise NotImplementedError


def with_relu(model: ir.Model) -> bool:
    """Make each Abs a Relu, which is another thing; that is the backend's affair."""
    found = [node for node in model.graph if node.op_type == "Abs"]
    for node in found:
        node.op_type = "Relu"
    return bool(found)


def cut(model: ir.Model) -> bool:
    """Leave a node without its input."""
    list(model.graph)[-1].replace_input_with(0, ir.Value(name="nowhere"))
    return True


def raising(model: ir.Model) -> bool:
    raise OSError("no license")


def operators(*backends: Any) -> list[str]:
    return [row.op_type for row in graft.plan(MODEL, list(backends)).placements]


def test_a_pass_runs_where_its_backend_takes_part() -> None:
    assert operators(Npu([Pass(with_relu)]), "reference") == ["Neg", "Relu"]
    assert operators("reference") == ["Neg", "Abs"]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (OSError("no license"), "no license"),
        (7, "a list of passes"),
        ([7], "graft_passes gave 7; give objects with a name and run"),
        ([Pass(raising)], "pass 'bring-relu'"),
        ([Pass(cut)], "pass 'bring-relu'"),
    ],
)
def test_a_fault_of_a_pass_names_the_backend(found: Any, text: str) -> None:
    with pytest.raises(PluginError) as caught:
        operators(Npu(found), "reference")
    assert "npu" in caught.value.message
    assert text in caught.value.message
