"""Operators that a rule brings: functions, schemas, what the model imports."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from graft.core.graph.view import NodeView
from graft.errors import PatternError
from graft.patterns import is_op, wildcard
from graft.patterns.rewrite import Rule, rewrite
from tests.patterns.graphs import graph_of

SILU = (x := wildcard().named("x")) * is_op("Sigmoid")(x)


BODY = "s = Sigmoid(x)\ny = Mul(x, s)"


FUNCTION = """<domain: "com.acme", opset_import: ["" : 21]>
Silu (x) => (y) {
    s = Sigmoid(x)
    y = Mul(x, s)
}"""


def model_of(body: str, types: bool = True) -> ir.Model:
    """Return a model of ONNX text, with the types of its inner values or without."""
    text = f'<ir_version: 10, opset_import: ["" : 21]>\ng (float[2,3] x) => (float[2,3] y) {{\n{body}\n}}'
    proto = onnx.parser.parse_model(text)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto) if types else proto)


def silu(**more: object) -> Rule:
    return Rule("silu", SILU, lambda match, op: op("Silu", match["x"], domain="com.acme"), **more)  # type: ignore[arg-type]


def test_a_vendors_operator_is_built_and_its_domain_imported() -> None:
    model = model_of(BODY)
    rewrite(model, [silu()])
    (node,) = model.graph
    assert (node.domain, node.op_type, model.opset_imports["com.acme"]) == ("com.acme", "Silu", 1)
    assert node.outputs[0].shape == ir.Shape([2, 3])
    assert model.graph.outputs[0].name == "y"


def test_a_version_is_imported_as_given_and_must_be_one() -> None:
    model = model_of("a = Relu(x)\ny = Exp(a)")
    rules = [Rule("relu", is_op("Relu"), lambda match, op: op("R", match.root.input(0), domain="com.acme", version=3))]
    rewrite(model, rules)
    assert model.opset_imports["com.acme"] == 3
    other = Rule("exp", is_op("Exp"), lambda match, op: op("E", match.root.input(0), domain="com.acme", version=2))
    with pytest.raises(PatternError) as caught:
        rewrite(model, [other])
    assert str(caught.value) == (
        "rule 'exp' at Exp (node 'y'): E (node 'node_E_1') is of version 2 of domain 'com.acme', of which the model "
        "imports 3; build the node of that version"
    )


def test_a_function_comes_into_the_model_with_its_first_call_and_gives_types() -> None:
    model = model_of("t = Sigmoid(x)\nm = Mul(x, t)\ny = Exp(m)")
    rule = silu(definitions=[onnx.parser.parse_function(FUNCTION)])
    untouched = model_of("y = Relu(x)")
    assert not rewrite(untouched, [rule])
    assert not untouched.functions
    x = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
    before = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})[0]
    rewrite(model, [rule])
    assert [node.op_type for node in model.graph] == ["Silu", "Exp"]
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    np.testing.assert_allclose(ReferenceEvaluator(proto).run(None, {"x": x})[0], before, rtol=1e-6)


def test_the_models_own_functions_are_called_and_infer_what_they_return() -> None:
    model = model_of("y = Relu(x)")
    function = ir.from_proto(onnx.parser.parse_function(FUNCTION.replace("Silu", "Twin").replace("(x)", "(x)", 1)))
    model.functions[function.identifier()] = function
    made: list[NodeView] = []

    def build(match, op):  # type: ignore[no-untyped-def]
        inner = op("Twin", match.root.input(0), domain="com.acme")
        made.append(NodeView(inner.producer()))
        return op("Abs", inner)

    rewrite(model, [Rule("twin", is_op("Relu"), build)])
    assert made[0].outputs[0].dtype == "float32"
    assert made[0].outputs[0].shape == (2, 3)


def test_a_schema_gives_types_and_the_version_to_import() -> None:
    schema = onnx.defs.OpSchema(
        "Wide", "com.acme", 4,
        inputs=[onnx.defs.OpSchema.FormalParameter("x", "tensor(float)")],
        outputs=[onnx.defs.OpSchema.FormalParameter("y", "tensor(double)")],
    )  # fmt: skip
    model = model_of("y = Relu(x)")

    def build(match, op):  # type: ignore[no-untyped-def]
        wide = op("Wide", match.root.input(0), domain="com.acme")
        return op("Cast", wide, to=int(onnx.TensorProto.FLOAT))

    rewrite(model, [Rule("wide", is_op("Relu"), build, definitions=[schema])])
    first = next(iter(model.graph))
    assert NodeView(first).outputs[0].dtype == "float64"
    assert model.opset_imports["com.acme"] == 4


def test_functions_need_the_model_and_a_name_of_their_own() -> None:
    rule = silu(definitions=[onnx.parser.parse_function(FUNCTION)])
    with pytest.raises(PatternError) as caught:
        rewrite(graph_of(BODY), [rule])
    assert str(caught.value) == (
        "rule 'silu' brings function 'com.acme.Silu', which a model keeps; call rewrite(model, rules) with the model, "
        "not its graph"
    )
    model = model_of(BODY)
    other = ir.from_proto(onnx.parser.parse_function(FUNCTION.replace("Sigmoid", "Tanh")))
    model.functions[other.identifier()] = other
    with pytest.raises(PatternError) as caught:
        rewrite(model, [rule])
    assert str(caught.value) == (
        "rule 'silu' brings 'com.acme.Silu', which the model has as another function; give it another name"
    )


def test_a_function_that_the_model_has_already_is_the_same_one() -> None:
    rule = silu(definitions=[onnx.parser.parse_function(FUNCTION)])
    model = model_of("s = Sigmoid(x)\nm = Mul(x, s)\ny = Exp(m)")
    rewrite(model, [rule])
    (function,) = model.functions.values()
    again = model_of(BODY)
    again.functions[function.identifier()] = ir.from_proto(onnx.parser.parse_function(FUNCTION))
    rewrite(again, [silu(definitions=[ir.from_proto(onnx.parser.parse_function(FUNCTION))])])
    assert [node.op_type for node in again.graph] == ["Silu"]
    assert len(again.functions) == 1


def test_a_schema_may_be_brought_twice_and_no_other_under_its_name() -> None:
    inputs, outputs = ([onnx.defs.OpSchema.FormalParameter(name, "tensor(float)")] for name in "xy")
    schema, other = (
        onnx.defs.OpSchema("Silu", "com.acme", version, inputs=inputs, outputs=outputs) for version in (4, 5)
    )
    model = model_of(BODY)
    rewrite(model, [silu(definitions=[schema, schema])])
    assert model.opset_imports["com.acme"] == 4
    for brought in ([schema, other], [onnx.parser.parse_function(FUNCTION), schema]):
        with pytest.raises(PatternError, match="has as another function; give it another name"):
            rewrite(model_of(BODY), [silu(definitions=brought)])


def test_a_domain_of_onnx_is_imported_in_the_version_of_its_operator() -> None:
    model = model_of("y = Relu(x)")
    rewrite(
        model,
        [
            Rule(
                "encode",
                is_op("Relu"),
                lambda match, op: op(
                    "LabelEncoder", match.root.input(0), domain="ai.onnx.ml", keys_floats=[0.0], values_floats=[1.0]
                ),
            )
        ],
    )
    assert (
        model.opset_imports["ai.onnx.ml"] == onnx.defs.get_schema("LabelEncoder", domain="ai.onnx.ml").since_version > 1
    )
