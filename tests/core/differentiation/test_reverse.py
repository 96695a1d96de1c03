"""The walk: what is visited, what is summed, and rules that give something else than a gradient."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.defs import OpSchema

import graft
from graft.core.differentiation.reverse import source_of
from graft.core.importer.load import load
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.adjoint import Vjp, each
from graft.core.operators.definition.table import Operator
from graft.errors import PluginError

DOMAIN = "com.example.reverse"
HEADER = f'<ir_version: 10, opset_import: ["" : 22, "ai.onnx.preview.training" : 1, "{DOMAIN}" : 1]>'


def define(name: str, vjp: Vjp | None, owner: str = "") -> None:
    schema = OpSchema(
        name, DOMAIN, 1, inputs=[OpSchema.FormalParameter("x", "T")], outputs=[OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
    )  # fmt: skip
    schema.set_type_and_shape_inference_function(_alike)
    operator = Operator(name, domain=DOMAIN, schema=schema, vjp=vjp)
    if owner:
        OPERATORS.admit(operator, owner)
    else:
        OPERATORS.add(operator)


def _alike(context: object) -> None:
    context.set_output_type(0, context.get_input_type(0))  # type: ignore[attr-defined]


define("Doubled", each(lambda f: f.scaled(f.gradient, 2.0)))
define("Flawed", each(lambda f: f("ReduceSum", f.gradient, keepdims=1)))
define("Trailing", lambda f: [f.gradient, ""])
define("Foreign", each(lambda f: f("ReduceSum", f.gradient, keepdims=1)), "plugin 'vendor'")
define("Narrowed", each(lambda f: f("Cast", f.gradient, to=onnx.TensorProto.FLOAT16)), "plugin 'vendor'")
define("Raising", lambda f: [str(f.attribute("gain", 1) / 0)], "plugin 'vendor'")
define("Generous", lambda f: [f.gradient, f.gradient], "plugin 'vendor'")


def model_of(nodes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""{HEADER} g (float[3] x, float[3] z) => (float[3] d) {{
        {nodes} [grad] d = ai.onnx.preview.training.Gradient <xs = ["x"], zs = ["z"], y = "y"> (x, z) }}""")


def operators(nodes: str) -> list[str]:
    return [node.op_type for node in load(model_of(nodes)).graph]


def test_an_operator_of_a_plugin_has_the_rule_of_its_row() -> None:
    nodes = operators(f"t = {DOMAIN}.Doubled (x) y = Mul (t, z)")
    assert nodes.count("Doubled") == 1
    assert nodes[-2:] == ["Mul", "Identity"]


def test_a_rule_may_leave_out_the_gradient_of_an_operand_that_is_left_out() -> None:
    assert "Trailing" in operators(f"t = {DOMAIN}.Trailing (x) y = Mul (t, z)")


def test_a_rule_of_another_shape_is_named() -> None:
    with pytest.raises(PluginError) as caught:
        load(model_of(f"[f] y = {DOMAIN}.Flawed (x)"))
    assert str(caught.value) == "Flawed (node 'f'): its derivative is float[1] for 'x', which is float[3]"


@pytest.mark.parametrize(
    ("operator", "fault"),
    [
        ("Foreign", "is float[1] for 'x', which is float[3]"),
        ("Narrowed", "is float16[3] for 'x', which is float[3]"),
        ("Raising", "raised ZeroDivisionError: division by zero"),
        ("Generous", "gives 2 gradients for 1 operands"),
    ],
)
def test_a_rule_of_a_plugin_that_is_wrong_is_named_with_the_plugin(operator: str, fault: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(model_of(f"[f] y = {DOMAIN}.{operator} (x)"))
    assert str(caught.value) == f"plugin 'vendor': {operator} (node 'f'): its derivative {fault}"
    assert (caught.value.plugin, caught.value.operator, caught.value.node) == ("vendor", operator, "f")


def test_gradients_of_a_value_that_many_read_are_summed() -> None:
    model = model_of("a = Sin (x) b = Mul (x, z) c = Mul (a, b) y = Sub (c, x)")
    x, z = np.float32([0.1, 1.0, 2.0]), np.float32([2, 3, 4])
    found = graft.compile(model, ["reference"], threads=1, cache=False).run({"x": x, "z": z})["d"]
    np.testing.assert_allclose(found, np.cos(x) * x * z + np.sin(x) * z - 1, rtol=1e-5)


def test_nothing_is_written_of_what_is_not_asked_for() -> None:
    assert "Cos" not in operators("a = Sin (z) y = Mul (x, a)")


@pytest.mark.parametrize(
    ("name", "source"),
    [("Relu", "rule"), ("Floor", "zero"), ("HardSwish", "function"), ("Unique", ""), ("Shape", "")],
)
def test_where_a_derivative_comes_from(name: str, source: str) -> None:
    operator = OPERATORS.get(name)
    assert operator is not None
    assert source_of(operator) == source


@pytest.mark.parametrize(
    ("inputs", "nodes"),
    [
        ("float[0,2,4,4] x, float[3,2,3,3] w", "y = Conv (x, w)"),
        ("float[3,0,2] x, float[1,12,2] w, float[1,12,3] r", "y = LSTM <hidden_size = 3> (x, w, r)"),
    ],
)
def test_a_batch_of_nothing_has_gradients_of_zeros(inputs: str, nodes: str) -> None:
    model = onnx.parser.parse_model(
        f"""{HEADER} g ({inputs}) => (float loss) {{
            {nodes} s = Mul (y, y) loss = ReduceSum <keepdims = 0> (s) }}"""
    )
    program = graft.compile(graft.grad(model, wrt=["x", "w"], outputs=[]), ["llvm", "reference"], cache=False)
    feeds = {one.name: np.ones(one.shape, np.float32) for one in program.inputs}
    found = program.run(feeds)
    for name in ("x", "w"):
        array = np.asarray(found[f"{name}_grad"])
        assert array.shape == feeds[name].shape and not array.any()
