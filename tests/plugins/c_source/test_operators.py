"""Every operator of the table in C, on ONNX's own cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import ValueView
from graft.core.machine.target import host_target
from graft.core.operators.all import OPERATORS
from graft.core.tensor_ir.ir import Function
from graft.partition.region import REGION_DOMAIN, Region
from graft.plugins.backend import CompiledRegion
from graft.plugins.c_source.backend import CBackend
from graft.plugins.codegen.region_kernels import RegionKernels
from graft.testkit.conformance.edges import at_edge
from tests.core.operators.node_cases import Case, all_cases, make_constant, node_of
from tests.plugins.llvm.execute import execute

BACKEND = CBackend()


def by_operator() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, case in all_cases().items():
        names.setdefault(case.model.graph.node[0].op_type, []).append(name)
    return names


def planned(case: Case, name: str) -> tuple[RegionKernels, list[np.ndarray]] | None:
    """The kernels of a case and their inputs; None if it is refused."""
    view = node_of(case.model, case.inputs, case.outputs)
    arrays = dict(zip([value.name for value in case.model.graph.input], case.inputs, strict=True))
    answer = BACKEND.supports(view)
    if answer is not True and answer.code == "constant-required":
        make_constant(view, arrays)
        answer = BACKEND.supports(view)
    if answer is not True:
        return None
    graph = view.node.graph
    inputs = [ValueView(value) for value in graph.inputs if value.const_value is None]
    function = ir.Function(REGION_DOMAIN, name, graph=graph, attributes=[])
    region = Region(name, "c_source", function, {}, tuple(inputs), tuple(ValueView(value) for value in graph.outputs))
    kernels = RegionKernels(region, OPERATORS, BACKEND.machine(host_target()), choices=BACKEND)
    return kernels, [arrays[value.name] for value in inputs]


@pytest.mark.parametrize("operator", sorted(by_operator()))
def test_an_operator_in_c_gives_what_onnx_expects(operator: str, load_image: Any) -> None:
    functions: list[Function] = []
    found = []
    for number, name in enumerate(by_operator()[operator]):
        case = all_cases()[name]
        known = planned(case, f"r{number}")
        if known is not None:
            functions += known[0].functions
            found.append((case, *known))
    if not found:
        pytest.skip(f"{operator}: every case is refused")
    module = BACKEND.emit(functions, BACKEND.machine(host_target())) if functions else None
    for case, kernels, inputs in found:
        compiled = CompiledRegion(() if module is None else (module,), kernels.procedure(), kernels.constants)
        for result, expected in zip(execute(compiled, inputs, load_image), case.outputs, strict=True):
            assert result.dtype == expected.dtype
            given, wanted = result.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(given, wanted, rtol=case.rtol, atol=case.atol, err_msg=case.name)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "int64"])
def test_what_lies_beside_a_short_row_is_not_read(dtype: str) -> None:
    """The compiler knows the mask of a row: the load must not become one of a whole vector."""
    row = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("ArgMax", ["x"], ["y"]), onnx.helper.make_node("Neg", ["x"], ["z"])],
        "rows",
        [onnx.helper.make_tensor_value_info("x", row, [2, 2])],
        [
            onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [1, 2]),
            onnx.helper.make_tensor_value_info("z", row, [2, 2]),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    program = graft.compile(model, ["c_source"], strict=True, cache=False)
    x = np.array([[1, 5], [3, 2]], dtype)
    for end in (False, True):
        found = program.run({"x": at_edge(x, end=end)})
        assert found["y"].tolist() == [[1, 0]] and found["z"].tolist() == [[-1, -5], [-3, -2]]
