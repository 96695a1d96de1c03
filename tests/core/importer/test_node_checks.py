"""Attributes out of range: refused when a model is loaded, whatever the operator."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import graft
from graft.core.importer.load import load
from graft.errors import ModelError
from tests.core.operators.node_cases import all_cases

PLACES = ("axis", "axes", "perm", "batch_dims", "batch_axis", "time_axis", "new_axis")
"""Attributes that are axes, or orders or numbers of them."""


@cache
def single_nodes() -> dict[tuple[str, str], onnx.ModelProto]:
    """A model of ONNX's suite by its one operator and an attribute of `PLACES` that it has."""
    found: dict[tuple[str, str], onnx.ModelProto] = {}
    for case in all_cases().values():
        operator, opset = case.model.graph.node[0].op_type, case.model.opset_import[0].version
        if case.model.graph.node[0].domain:  # of training
            continue
        schema = onnx.defs.get_schema(operator, max_inclusive_version=opset)
        typed = all(value.type.tensor_type.HasField("shape") for value in case.model.graph.input)
        for name in schema.attributes if typed else ():
            if name in PLACES and not (operator == "DequantizeLinear" and case.inputs[1].ndim == 0):
                found.setdefault((operator, name), case.model)
    return found


def with_attribute(model: onnx.ModelProto, name: str, number: int) -> onnx.ModelProto:
    """The model with an attribute of its node out of range."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    node = changed.graph.node[0]
    old = {attribute.name: attribute for attribute in node.attribute}
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=model.opset_import[0].version)
    whole = schema.attributes[name].type == onnx.defs.OpSchema.AttrType.INTS
    value = [number, *(old[name].ints[1:] if name in old else [0])] if whole else number
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value, attr_type=_kind(whole))])
    return changed


def _kind(whole: bool) -> int:
    return int(AttributeProto.INTS if whole else AttributeProto.INT)


@pytest.mark.parametrize("number", [99, -99])
@pytest.mark.parametrize(("operator", "name"), sorted(single_nodes()), ids=".".join)
def test_no_operator_takes_an_axis_out_of_range(operator: str, name: str, number: int) -> None:
    model = with_attribute(single_nodes()[operator, name], name, number)
    with pytest.raises(ModelError) as caught:
        load(model)
    assert operator in str(caught.value)


def one_node(operator: str, shapes: list[tuple[int, ...]], **attributes: object) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(shapes))]
    inputs = [helper.make_tensor_value_info(*row) for row in zip(names, [TensorProto.FLOAT] * 9, shapes, strict=False)]
    node = helper.make_node(operator, names, ["y"], name="it", **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shapes[0]))
    graph = helper.make_graph([node], "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


IMAGE, WEIGHTS = (1, 4, 8, 8), (6, 2, 3, 3)


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "message"),
    [
        ("LayerNormalization", [(2, 3), (3,)], {"axis": 7},
         "axis 7 is out of range: an axis of a tensor of rank 2 is in [-2, 1]"),
        ("LayerNormalization", [(2, 3), (3,)], {"epsilon": -1.0}, "epsilon is -1.0, where at least 0 is expected"),
        ("Conv", [IMAGE, WEIGHTS], {"group": 3}, "group 3 does not divide the 4 channels of its input"),
        ("Conv", [IMAGE, (5, 2, 3, 3)], {"group": 2}, "group 2 does not divide the 5 channels of its result"),
        ("Conv", [IMAGE, WEIGHTS], {}, "axis 1 of 'x0' is 4 and axis 1 of 'x1' is 2; they must be equal"),
        ("Conv", [IMAGE, WEIGHTS], {"group": 2, "strides": [1, 0]},
         "strides is [1, 0], where at least 1 is expected"),
        ("Conv", [IMAGE, WEIGHTS], {"group": 2, "auto_pad": "SAME"},
         "auto_pad is 'SAME', where one of 'NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID' is expected"),
        ("Conv", [IMAGE, WEIGHTS, (5,)], {"group": 2},
         "axis 0 of 'x2' is 5 and axis 0 of 'x1' is 6; they must be equal"),
        ("Gemm", [(2, 3), (3, 4), (5,)], {},
         "axis 0 of 'x2' is 5 and axis 1 of 'y' is 4; they must be equal, or the first 1"),
        ("DequantizeLinear", [(2, 3), (4,)], {}, "axis 0 of 'x1' is 4 and axis 1 of 'x0' is 3; they must be equal"),
        ("Relu", [(2, 3)], {}, None),
        ("MeanVarianceNormalization", [(2, 3, 4, 5)], {"axes": [0, -4]}, "axes [0, -4] name one axis twice"),
        ("GroupNormalization", [(2, 6, 4), (6,), (6,)], {"num_groups": 4},
         "num_groups 4 does not fit axis 1 of extent 6, which 4 must divide"),
        ("LpNormalization", [(2, 3)], {"p": 3}, "p is 3, where one of 1, 2 is expected"),
    ],
)  # fmt: skip
def test_an_attribute_out_of_range_is_named(
    operator: str, shapes: list[tuple[int, ...]], attributes: dict[str, object], message: str | None
) -> None:
    model = one_node(operator, shapes, **attributes)
    if message is None:
        load(model)
        return
    with pytest.raises(ModelError) as caught:
        load(model)
    assert str(caught.value) == f"{operator} (node 'it'): {message}"


@pytest.mark.parametrize("indices", [[0, 5], [-6]])
def test_a_constant_index_out_of_range_is_refused(indices: list[int]) -> None:
    model = one_node("Gather", [(5, 2), (1,)], axis=0)
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(np.array(indices), "x1"))
    with pytest.raises(ModelError) as caught:
        load(model)
    assert str(caught.value) == (
        f"Gather (node 'it'): index {indices[-1]} in 'x1' is out of range: axis 0 has extent 5, so that -5 to 4 are "
        "legal"
    )
    assert (caught.value.axis, caught.value.extent) == (0, 5)  # type: ignore[attr-defined]


POOLS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,1,2,2] x, bool c) => (float[n,m,h,w] y) { %s }"""
POOL = "y = MaxPool<kernel_shape = [5, 4]>(x)"


def test_a_result_of_negative_extents_is_refused_but_in_a_branch_that_may_not_be_taken() -> None:
    with pytest.raises(ModelError) as caught:
        load(onnx.parser.parse_model(POOLS % POOL))
    assert str(caught.value).endswith(
        "its result 'y' would have the shape [1,1,-2,-1]; a window is wider than the padded image, or more is cut off "
        "than there is"
    )
    load(onnx.parser.parse_model(POOLS % POOL.replace("[5, 4]", "[3, 2]")))  # no rows are rows
    branches = f"then_branch = a () => (float[n,m,h,w] t) {{ {POOL.replace('y', 't', 1)} }}"
    branches += ", else_branch = b () => (float[n,m,h,w] e) { e = Relu(x) }"
    load(onnx.parser.parse_model(POOLS % f"y = If(c) <{branches}>"))


@pytest.mark.parametrize(
    ("node", "shown"),
    [("Tile(x, r)", "[8000000000,8000000000]"), ("Expand(x, e)", "[4000000000000000000,2]"),
     ("Range(zero, many, one)", "[5000000000000000000]")],
)  # fmt: skip
def test_a_result_that_no_memory_holds_is_refused(node: str, shown: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[1,2] x) => (float[n] y)
        <int64[2] r = {{8000000000, 4000000000}}, int64[2] e = {{4000000000000000000, 1}}, int64 zero = {{0}},
         int64 many = {{5000000000000000000}}, int64 one = {{1}}> {{ y = {node} }}"""
    with pytest.raises(ModelError) as caught:
        load(onnx.parser.parse_model(text.replace("float[n] y", "int64[n] y") if "Range" in node else text))
    wanted = f"would have the shape {shown}, more than 2**59 elements; give it smaller extents"
    assert str(caught.value) == f"{node.partition('(')[0]} (node 'y'): its result 'y' {wanted}"


def test_an_input_that_no_memory_holds_is_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[4000000000,4000000000] x) => (float[n,m] y) {
        y = Relu(x) }"""
    with pytest.raises(ModelError, match=r"^input 'x' would have the shape \[4000000000,4000000000\], more than 2"):
        load(onnx.parser.parse_model(text))


@pytest.mark.parametrize("kind", ["int64", "float"])
def test_a_range_in_steps_of_0_is_refused(kind: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g ({kind} limit) => ({kind}[n] y)
        <{kind} start = {{0}}, {kind} step = {{0}}> {{ y = Range(start, limit, step) }}"""
    with pytest.raises(ModelError) as caught:
        load(onnx.parser.parse_model(text))
    assert str(caught.value) == ("Range (node 'y'): 'step' is 0, and says no number of elements; give another number")


def in_codes(scale: float, weight_scale: float) -> onnx.ModelProto:
    """A product of codes by two columns of weights, the second of which has a scale of its own."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[1,2] x) => (float[1,2] y)
        <float xs = {{{scale}}}, int8 z = {{3}}, int8[2,2] w = {{1, 2, 3, 4}}, float[2] ws = {{0.5, {weight_scale}}}> {{
        q = QuantizeLinear (x, xs, z)
        d = DequantizeLinear (q, xs, z)
        v = DequantizeLinear <axis = 1> (w, ws)
        y = MatMul (d, v) }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ((0.0, 1.0), "QuantizeLinear (node 'q'): the scale 'xs' is 0, by which no number can be "
                     "divided; quantise the model anew"),
        ((float("nan"), 1.0), "QuantizeLinear (node 'q'): the scale 'xs' is nan, by which no number "
                              "can be divided; quantise the model anew"),
        ((0.5, float("inf")), "DequantizeLinear (node 'v'): the scale 'ws' is inf at [1]; quantise "
                              "the model anew"),
    ],
)  # fmt: skip
def test_scales_by_which_nothing_can_be_computed_are_refused(scales: tuple[float, float], message: str) -> None:
    model = in_codes(1.0, 1.0)
    for tensor, array in zip(("xs", "ws"), (np.float32(scales[0]), np.float32([0.5, scales[1]])), strict=True):
        held = next(one for one in model.graph.initializer if one.name == tensor)
        held.CopyFrom(numpy_helper.from_array(np.asarray(array), tensor))
    with pytest.raises(ModelError) as caught:
        load(model)
    assert str(caught.value) == message


@pytest.mark.parametrize("scales", [(0.5, 0.0), (-0.5, 1.0), (0.5, -1.0)])
def test_scales_of_0_and_below_are_computed_with_as_onnx_says(scales: tuple[float, float]) -> None:
    model, x = in_codes(*scales), np.float32([[2.0, -1.4]])
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(graft.compile(model, ["llvm"], threads=1)(x), wanted)


def test_a_scale_that_is_the_number_of_a_constant_node_is_checked_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) <int8 z = {0}> {
        s = Constant <value_float = 0.0> ()
        q = QuantizeLinear (x, s, z)
        y = DequantizeLinear (q, s, z) }"""
    with pytest.raises(ModelError) as caught:
        load(onnx.parser.parse_model(text))
    assert str(caught.value) == (
        "QuantizeLinear (node 'q'): the scale 's' is 0, by which no number can be divided; quantise the model anew"
    )
