"""Every operator of the table, compiled, on ONNX's own cases."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.graph.view import ValueView
from graft.core.machine.target import CompileOptions, host_target
from graft.partition.region import REGION_DOMAIN, Region
from graft.plugins.llvm.backend import LlvmBackend
from tests.core.operators.node_cases import all_cases, make_constant, node_of
from tests.plugins.llvm.execute import execute


@pytest.mark.parametrize("name", sorted(all_cases()))
def test_compiled_operator_gives_what_onnx_expects(name: str, load_image: Any) -> None:
    case, backend = all_cases()[name], LlvmBackend()
    view = node_of(case.model, case.inputs, case.outputs)
    arrays = dict(zip([value.name for value in case.model.graph.input], case.inputs, strict=True))
    answer = backend.supports(view)
    if answer is not True and answer.code == "constant-required":
        make_constant(view, arrays)
        answer = backend.supports(view)
    if answer is not True:
        pytest.skip(f"{view.op_type}: {answer}")
    graph = view.node.graph
    inputs = [ValueView(value) for value in graph.inputs if value.const_value is None]
    function = ir.Function(REGION_DOMAIN, "r", graph=graph, attributes=[])
    region = Region("r", "llvm", function, {}, tuple(inputs), tuple(ValueView(value) for value in graph.outputs))
    compiled = backend.compile(region, CompileOptions(host_target()))
    results = execute(compiled, [arrays[value.name] for value in inputs], load_image)
    for result, expected in zip(results, case.outputs, strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(
            result.astype(np.float64), expected.astype(np.float64), rtol=case.rtol, atol=case.atol
        )
