"""The model that is built of the decisions: functions, calls, names."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from graft.core.importer.load import load
from graft.partition.placement.partitioner import partition
from graft.partition.region import regions
from graft.patterns import Composite, absent, is_constant, is_op, wildcard
from graft.patterns.match import Match
from tests.partition.graphs import everything, model_of, small, toy

ADD_RELU = is_op("Relu")(is_op("Add")(wildcard(), wildcard()))


def test_a_region_with_several_outputs_lists_them_in_the_models_order() -> None:
    model = small("a = Relu(x)\nb = Tanh(a)\nc = Exp(b)\nd = Sub(a, c)\ny = Mul(d, b)")
    result = partition(model, [toy("npu", "Relu", "Tanh"), everything()])
    first = regions(result.model)[0]
    assert [value.name for value in first.outputs] == ["a", "b"]
    assert first.origin == ("a", "b")


def test_what_gives_a_symbol_its_value_leaves_its_region_where_others_read_extents_of_it() -> None:
    model = load(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]>\n'
            "g (int64 n) => (int64[k] y) <int64 zero = {0}, int64 one = {1}>\n"
            "{ r = Range(zero, n, one) c = Concat<axis = 0>(r, r) y = Neg(c) }"
        )
    )
    first, _ = regions(partition(model, [toy("npu", "Neg"), everything()]).model)
    assert [value.name for value in first.outputs] == ["r", "c"]


def test_shared_inputs_and_constants_are_passed_once() -> None:
    model = model_of(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Add(x, w) b = Mul(a, w) y = Add(b, x) }"
    )
    region = regions(partition(model, [everything()]).model)[0]
    assert [value.name for value in region.inputs] == ["x"]
    assert list(region.constants) == ["w"]
    assert [node.name for node in region.nodes()] == ["a", "b", "y"]
    assert region.constant("w").tolist() == [1, 2]


def test_the_model_given_is_not_changed() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    before = ir.to_onnx_text(model)
    partition(model, [toy("npu", "Relu"), everything()])
    assert ir.to_onnx_text(model) == before


def test_a_composite_becomes_a_function_that_the_region_calls() -> None:
    model = small("a = Add(x, x)\nb = Relu(a)\ny = Relu(b)")
    backend = toy("npu", "Relu", patterns=[Composite("npu.add_relu", ADD_RELU)])
    result = partition(model, [backend, everything()])
    (region,) = regions(result.model)
    call, single = region.nodes()
    found = region.composite(call)
    assert found is not None
    assert found[0] == "npu.add_relu"
    assert found[1].metadata_props["PartitionedFromPattern"] == "Add_Relu"
    assert [node.op_type for node in found[1]] == ["Add", "Relu"]
    assert single.op_type == "Relu"
    assert region.origin == ("a", "b", "y")
    assert result.plan["a"].composite == "npu.add_relu"


def test_an_optional_input_may_be_absent_from_a_composite() -> None:
    conv = is_op("Conv")(wildcard(), wildcard(), (is_constant() | absent()).named("bias"))
    model = model_of(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        "g (float[1,1,3,3] x, float[1,1,1,1] w) => (float[1,1,3,3] y) { y = Conv(x, w) }"
    )
    seen: list[object] = []

    def check(match: Match) -> bool:
        seen.append(match.get("bias"))
        return True

    plan = partition(model, [toy("npu", patterns=[Composite("npu.conv", conv, check)])]).plan
    assert plan["y"].composite == "npu.conv"
    assert seen == [None]


def test_region_names_are_identifiers_and_keep_the_backends_name_in_metadata() -> None:
    result = partition(small("y = Relu(x)"), [everything("my-npu.v2")])
    (region,) = regions(result.model)
    assert (region.name, region.backend) == ("my_npu_v2_0", "my-npu.v2")
