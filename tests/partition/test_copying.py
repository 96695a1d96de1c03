"""Copies of values, nodes and bodies, on the values of a new scope."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graft.partition.copying import ValueMap, copy_graph, copy_node, copy_value, fresh_outputs
from tests.partition.graphs import small

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def test_a_copied_value_has_name_type_shape_and_no_producer() -> None:
    model = small("y = Relu(x)")
    value = model.graph.outputs[0]
    value.metadata_props["origin"] = "here"
    copy = copy_value(value)
    assert (copy.name, copy.type, copy.shape) == ("y", FLOAT, ir.Shape([2, 3]))
    assert (copy.producer(), copy.const_value, dict(copy.metadata_props)) == (None, None, {"origin": "here"})
    assert copy.shape is not value.shape


def test_a_tensor_makes_the_copy_constant_and_gives_what_it_lacks() -> None:
    tensor = ir.tensor([[1.0, 2.0]], dtype=ir.DataType.FLOAT)
    copy = copy_value(ir.Value(name="k"), tensor)
    assert (copy.const_value, copy.type, copy.shape) == (tensor, FLOAT, ir.Shape([1, 2]))
    known = copy_value(ir.Value(name="k", shape=ir.Shape(["n", 2]), type=ir.TensorType(ir.DataType.INT8)), tensor)
    assert (known.type, known.shape) == (ir.TensorType(ir.DataType.INT8), ir.Shape(["n", 2]))
    bare = copy_value(ir.Value(name="k"))
    assert (bare.type, bare.shape) == (None, None)


def test_a_scope_knows_the_values_around_it_and_keeps_its_own_to_itself() -> None:
    a, b = ir.Value(name="a"), ir.Value(name="b")
    outer = ValueMap({})
    copy = outer.add(a)
    inner = ValueMap(outer.all)
    assert inner[a] is copy
    assert inner.add_once(a) is copy
    assert inner.add_once(b) is inner[b]
    with pytest.raises(KeyError):
        outer[b]


def test_adding_once_keeps_what_is_constant() -> None:
    constant = ir.Value(name="k", const_value=ir.tensor([1.0]))
    assert ValueMap({}).add_once(constant).const_value is constant.const_value


def test_fresh_outputs_are_entered_in_the_scope() -> None:
    values, scope = [ir.Value(name="a"), ir.Value(name="b")], ValueMap({})
    made = fresh_outputs(values, scope)
    assert made == [scope[value] for value in values]


def test_a_copied_node_reads_the_scope_and_keeps_absent_inputs() -> None:
    x, high = ir.Value(name="x"), ir.Value(name="high")
    attribute = ir.AttrInt64("axis", 1)
    node = ir.Node(
        "com.acme", "Clip", [x, None, high], [attribute], overload="o", version=3, name="n",
        doc_string="words", metadata_props={"key": "value"},
    )  # fmt: skip
    scope = ValueMap({})
    new_x, new_high = scope.add(x), scope.add(high)
    copy = copy_node(node, scope, name="m")
    assert list(copy.inputs) == [new_x, None, new_high]
    assert (copy.domain, copy.op_type, copy.overload, copy.version) == ("com.acme", "Clip", "o", 3)
    assert (copy.name, copy.doc_string, copy.metadata_props) == ("m", "words", {"key": "value"})
    assert copy.attributes["axis"] is attribute
    assert scope[node.outputs[0]] is copy.outputs[0]
    other = ir.AttrInt64("axis", 2)
    assert copy_node(node, scope, name="m", replaced={"axis": other}).attributes["axis"] is other


def test_bodies_are_copied_onto_the_values_that_they_capture() -> None:
    model = small(
        """y = If(c) <
          then_branch = t () => (float[2,3] p) <float[3] k = {1, 2, 3}> { p = Mul(x, k) },
          else_branch = e () => (float[2,3] q) { q = Neg(x) }
        >""",
        inputs="float[2,3] x, bool c",
    )
    scope = ValueMap({})
    x, _ = (scope.add(value) for value in model.graph.inputs)
    before = model.graph[0].attributes["then_branch"].as_graph()
    body = copy_node(model.graph[0], scope, name="if").attributes["then_branch"].as_graph()
    product = body[0]
    assert product.inputs[0] is x
    assert product.inputs[1] is body.initializers["k"]
    assert product.inputs[1] is not before.initializers["k"]
    assert body.outputs[0] is product.outputs[0]
    assert (body.name, product.name) == (before.name, before[0].name or "Mul")


def test_bodies_in_a_list_are_copied_too() -> None:
    x, scope = ir.Value(name="x"), ValueMap({})
    inner = ir.Node("", "Relu", [x], name="")
    body = ir.Graph([], inner.outputs, nodes=[inner], name="body", opset_imports={"": 21})
    node = ir.Node("com.acme", "Several", [], [ir.AttrGraphs("bodies", [body])])
    new = scope.add(x)
    (copy,) = copy_node(node, scope, name="n").attributes["bodies"].as_graphs()
    assert copy[0].inputs[0] is new
    assert copy.opset_imports == {"": 21}
    inner.name = ""
    assert copy_graph(body, scope)[0].name == "Relu"
