"""Rewriting to operators that ONNX does not have: a vendor's, by schema or function, and the model's own functions."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.errors import PatternError
from graft.patterns import Pattern, is_op, wildcard
from graft.patterns.rewrite import Rule, rewrite

SILU = (x := wildcard().named("x")) * is_op("Sigmoid")(x)


def model_of(body: str, types: bool = True) -> ir.Model:
    """Return a model of ONNX text, with the types of its inner values or without."""
    text = f'<ir_version: 10, opset_import: ["" : 21]>\ng (float[2,3] x) => (float[2,3] y) {{\n{body}\n}}'
    proto = onnx.parser.parse_model(text)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto) if types else proto)


def silu(**more: object) -> Rule:
    return Rule("silu", SILU, lambda match, op: op("Silu", match["x"], domain="com.acme"), **more)  # type: ignore[arg-type]


def test_a_builder_that_raises_is_named_with_rule_and_node() -> None:
    def build(match, op):  # type: ignore[no-untyped-def]
        raise KeyError("scale")

    with pytest.raises(PatternError) as caught:
        rewrite(model_of("y = Relu(x)"), [Rule("r", is_op("Relu"), build)])
    assert str(caught.value) == "rule 'r' at Relu (node 'y'): its builder raised KeyError: 'scale'"
    with pytest.raises(PatternError) as caught:
        rewrite(model_of("y = Relu(x)"), [Rule("r", is_op("Relu"), lambda match, op: match["q"])])
    assert str(caught.value) == "rule 'r' at Relu (node 'y'): the pattern captures no 'q'; it captures nothing"
    with pytest.raises(PatternError) as caught:
        rewrite(model_of("y = Relu(x)"), [Rule("r", is_op("Relu"), lambda match, op: ["x"])])  # type: ignore[list-item]
    assert str(caught.value) == "rule 'r' at Relu (node 'y'): it built 'x'; return what op(...) returns"


@pytest.mark.parametrize("pattern", [is_op("Relu").has_dtype("float32"), is_op("Relu").has_shape(2, 3)])
def test_a_model_without_types_is_inferred_first(pattern: Pattern) -> None:
    model = model_of("a = Relu(x)\ny = Exp(a)", types=False)
    assert rewrite(model, [Rule("abs", pattern, lambda match, op: op("Abs", match.root.input(0)))])
    assert [node.op_type for node in model.graph] == ["Abs", "Exp"]


class Acme(graft.JsonBackend):
    name = "acme"

    @graft.supports("com.acme::Silu")
    def silu(self, node: NodeView) -> bool:
        return True

    def load(self, graph, constants):  # type: ignore[no-untyped-def]
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [arrays[0] / (1 + np.exp(-arrays[0]))])


def test_the_vendor_computes_what_was_rewritten_for_it() -> None:
    model = graft.load(ir.to_proto(model_of("s = Sigmoid(x)\nm = Mul(x, s)\ny = Relu(m)")))
    rewrite(model, [silu()])
    program = graft.compile(model, [Acme(), "llvm"])
    x = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
    np.testing.assert_allclose(program(x), np.maximum(x / (1 + np.exp(-x)), 0), rtol=1e-5)
