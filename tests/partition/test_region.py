"""A region as its backend receives it."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from hypothesis import given, settings

from graft.errors import ModelError
from graft.partition.placement.partitioner import partition
from graft.partition.region import region_calls, regions
from graft.patterns import Composite, is_op, wildcard
from tests.partition.drawn_backends import BACKENDS, backends_of
from tests.partition.graphs import (
    everything,
    random_models,
    small,
    toy,
)


@settings(max_examples=40, deadline=None)
@given(random_models(), BACKENDS)
def test_regions_carry_types_and_constants(model: ir.Model, operators: list[set[str]]) -> None:
    result = partition(model, backends_of(operators))
    for region in regions(result.model):
        assert all(value.static_shape == (2, 3) and value.dtype == "float32" for value in region.inputs)
        assert set(region.constants) <= {"w"}
        for node in region.nodes():
            assert all(value.dtype == "float32" for value in node.outputs)
            assert all(value.is_constant == (value.name == "w") for value in node.inputs if value is not None)


def composed() -> ir.Model:
    row = Composite("npu.add_relu", is_op("Relu")(wildcard().named("a") + wildcard().named("b")))
    model = small("s = Add(x, x)\nr = Relu(s)\ny = Mul(r, x)")
    return partition(model, [toy("npu", "Mul", patterns=[row]), everything()]).model


def test_a_composite_is_one_node_that_opens_into_its_operators() -> None:
    (region,) = regions(composed())
    call, product = region.nodes()
    found = region.composite(call)
    assert found is not None
    assert found[0] == "npu.add_relu"
    assert region.composite(product) is None
    assert [node.op_type for node in region.opened(call)] == ["Add", "Relu"]
    assert region.opened(product) == (product,)
    assert region.backend == "npu"
    assert region.origin == ("s", "r", "y")


def test_operands_of_a_composite_stay_apart_though_they_are_one_value() -> None:
    (region,) = regions(composed())
    call, product = region.nodes()
    assert [one.names for one in region.operands(call)] == [("a",), ("b",)]
    assert [one.names for one in region.operands(product)] == [(), ()]
    assert len({one.value.name for one in region.operands(call) if one.value is not None}) == 1


def test_constants_are_read_by_name_and_are_no_inputs() -> None:
    model = small("k = Constant <value = float[3] {1, 2, 3}> ()\ny = Mul(x, k)")
    (region,) = regions(partition(model, [everything()]).model)
    assert [value.name for value in region.inputs] == ["x"]
    assert region.constant("k").tolist() == [1.0, 2.0, 3.0]


def test_a_region_is_a_clone_that_a_backend_may_change() -> None:
    model = composed()
    (region,) = regions(model)
    region.function.outputs[0].name = "changed"
    (again,) = regions(model)
    assert again.outputs[0].name != "changed"


def test_a_region_as_it_stands_leaves_no_trace_in_the_model() -> None:
    model = composed()
    (call,) = region_calls(model, {})
    function = model.functions[call.call.op_identifier()]
    before = [(value.type, value.shape, value.const_value) for value in (*function.inputs, *function.outputs)]
    with call.as_it_stands() as region:
        assert region.function is function
        assert region.outputs[0].static_shape == (2, 3)
    assert [(value.type, value.shape, value.const_value) for value in (*function.inputs, *function.outputs)] == before


def test_a_call_without_its_function_is_named() -> None:
    model = composed()
    call = region_calls(model, {})[0].call
    call.name = "call"
    del model.functions[call.op_identifier()]
    with pytest.raises(ModelError) as caught:
        regions(model)
    assert str(caught.value) == (
        f"{call.op_type} (node 'call') calls function 'graft.region.{call.op_type}', which the model does not have"
    )
