"""ONNX's own node suite with a symbol for every axis of its inputs: what comes out is what comes out with numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.errors import ModelError
from graft.runtime.extents import evaluate
from tests.end_to_end.onnx_suite import DIFFERENT, EVERY_NTH, REFUSED, all_cases, listed

SHAPED = frozenset({"int64", "int32", "bool"})
"""Inputs of these types and of at most one axis may say shapes: they become constants."""


CASES = [
    name
    for number, name in enumerate(all_cases())
    if number % (2 * EVERY_NTH) == 3 and not listed(name, {**REFUSED, **DIFFERENT})
]


def symbolic(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Return a case's model with a symbol for every axis of its inputs, and what they are in the case."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    values: dict[str, int] = {}
    given = list(model.graph.input)
    del model.graph.input[:], model.graph.value_info[:]
    for value in given:
        array = inputs[value.name]
        if len(given) > 1 and array.ndim < 2 and array.dtype.name in SHAPED:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
            continue
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            name = f"d{len(values)}"
            values[name] = array.shape[axis]
            dimension.ClearField("dim_value")
            dimension.dim_param = name
        model.graph.input.append(value)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model, values


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_the_suite_with_symbolic_inputs_gives_what_it_gives_with_numbers(name: str) -> None:
    case = all_cases()[name]
    if not case.tensors or len(case.inputs) != len(case.model.graph.input):
        pytest.skip("the case has values that are no tensors")
    model, values = symbolic(case.model, case.inputs)
    static = graft.compile(case.model, cache=False, tuned=False)
    try:
        program = graft.compile(model, cache=False, tuned=False)
    except ModelError as error:
        if "its rank depends on what is computed at run time" not in str(error):
            raise
        pytest.skip("the rank of a result is known with numbers only")
    feeds = {one.name: case.inputs[one.name] for one in program.inputs}
    entry = program.description.procedures[0]
    results, expected = program.run(feeds), static.run(case.inputs)
    for index in entry.outputs:
        spec = entry.tensors[index]
        np.testing.assert_allclose(results[spec.name], expected[spec.name], rtol=case.rtol, atol=max(case.atol, 1e-6))
        known = values.keys() >= {symbol.name for symbol in entry.symbols}
        if spec.shape is not None and known:
            assert tuple(evaluate(extent, values) for extent in spec.shape) == results[spec.name].shape
