"""Passes that a backend brings: they run where it takes part, and what is wrong with them names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import pytest

import graft
from graft.compiler.backend_passes import prepare_for
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


def test_a_backend_of_integers_gets_layers_that_share_nothing() -> None:
    class Integers(Npu):
        quantized = True

    text = """<ir_version: 10, opset_import: ["" : 21]> g (int8[2] x, float s) => (float[2] y, float[2] z)
    <float scale = {0.5}> { d = DequantizeLinear(x, scale) y = Relu(d) z = Sigmoid(d) }"""
    for kind, count in ((Npu, 1), (Integers, 2)):
        model = graft.load(onnx.parser.parse_model(text))
        prepare_for(model, [kind(())])
        assert sum(node.op_type == "DequantizeLinear" for node in model.graph) == count


def test_what_a_backend_does_not_want_does_not_run() -> None:
    class Transposing(Npu):
        unwanted_passes = frozenset({"interleave-convolutions"})

        def supports(self, node: Any) -> bool:
            return node.op_type == "ConvTranspose"

    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[1,1,2,2] x) => (float[1,1,4,4] y)
    <float[1,1,2,2] w = {1,2,3,4}> { y = ConvTranspose<strides=[2,2]>(x, w) }"""
    model = onnx.parser.parse_model(text)
    assert [row.backend for row in graft.plan(model, [Transposing(()), "llvm"]).placements] == ["npu"]
    assert "ConvTranspose" not in {row.op_type for row in graft.plan(model, [Npu(()), "llvm"]).placements}


def test_what_is_not_wanted_is_a_set_of_names() -> None:
    class Wrong(Npu):
        unwanted_passes = "interleave-convolutions"  # type: ignore[assignment]

    with pytest.raises(PluginError) as caught:
        graft.plan(MODEL, [Wrong(())])
    assert str(caught.value) == (
        "backend object Wrong: backend 'npu' has unwanted_passes = 'interleave-convolutions'; set it to a frozenset "
        "of passes, as in frozenset({'interleave-convolutions'})"
    )
