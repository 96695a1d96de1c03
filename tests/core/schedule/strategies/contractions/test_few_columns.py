"""Products of few columns along their terms: which they are, and that they are what plain sums are."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul

TARGETS = [target_named(name) for name in ("x86-64-v4", "x86-64-v3", "x86-64", "armv8-a")]


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.machine.name)
@pytest.mark.parametrize("epilogue", ["", "bias", "heavy"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((9, 128), (128, 2)), ((1, 200), (200, 3)), ((3, 5, 131), (131, 2)), ((2, 6, 64), (2, 64, 2)), ((4, 70), (70, 2))],
)
def test_sums_along_terms_are_those_of_the_stages(left, right, epilogue, target):
    kernel, arrays = matmul(left, right, constant=True, epilogue=epilogue)
    scheduled = schedule(kernel, target)
    assert scheduled.strategy == "few_columns"
    verify(scheduled.function)
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))[kernel.outputs[0]]
    given = [scheduled.packed.get(one, array) for one, array in zip(kernel.inputs, arrays, strict=True)]
    function = scheduled.function
    parameters = function.parameters[: len(given)]
    (found,) = run_function(function, [one.reshape(b.dims(own)) for one, own in zip(given, parameters, strict=True)])
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("left", "right", "constant"),
    [
        ((64, 128), (128, 16), True),  # a whole vector of columns
        ((64, 16), (16, 4), True),  # few terms
        ((64, 128), (128, 2), False),  # terms of the right factor lie apart
        ((64, 128), (128, 1), True),  # a reduction of rows
        ((33, 2000), (2000, 11), True),  # the right factor comes from the second cache for each row
    ],
)
def test_other_products_are_left_to_other_schedules(left, right, constant):
    kernel, _ = matmul(left, right, constant=constant)
    assert schedule(kernel, TARGETS[0]).strategy != "few_columns"


@pytest.mark.parametrize(("left", "right"), [((33, 1500), (1500, 8)), ((2, 2000), (2000, 10)), ((33, 600), (600, 11))])
def test_factors_that_are_read_by_few_tiles_or_stay_near_are_summed_along_terms(left, right):
    kernel, _ = matmul(left, right, constant=True)
    assert schedule(kernel, TARGETS[0]).strategy == "few_columns"


@pytest.mark.parametrize(
    ("left", "loop"), [((1, 90, 128), "i.tile < 22"), ((40, 5, 128), "b0 < 40"), ((8, 5, 128), "b0 < 8")]
)
def test_threads_share_products_or_their_rows(left, loop):
    kernel, _ = matmul(left, (left[0], 128, 3), constant=True)
    scheduled = schedule(kernel, TARGETS[0])
    assert scheduled.strategy == "few_columns"
    assert f"parallel {loop}" in str(scheduled.function)


def strategies(program):
    calls = (call.schedule for procedure in program.description.procedures for call in procedure.calls)
    return {one["strategy"] for one in calls if one}


@pytest.mark.parametrize(
    ("rows", "terms", "columns"), [(70, 256, 1), (33, 100, 3), (5, 70, 2), (1, 512, 2), (9, 2048, 1)]
)
@pytest.mark.parametrize("point", [0, 117])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_bytes_are_exact(rows, terms, columns, point, threads):
    random = np.random.default_rng(terms)
    x = random.integers(0, 256, (rows, terms)).astype(np.uint8)
    w = random.integers(-127, 128, (terms, columns)).astype(np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, terms])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, columns])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.uint8(point), "z")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = graft.compile(model, ["llvm"], threads=threads, cache=False, tuned=False)
    np.testing.assert_array_equal(program(x), (x.astype(np.int32) - point) @ w.astype(np.int32))


@pytest.mark.parametrize("precision", ["exact", "bf16"])
@pytest.mark.parametrize("size", [1, 3, 4, 50])
def test_rows_of_any_number_are_summed(size, precision):
    w = np.random.default_rng(1).standard_normal((96, 3)).astype(np.float32)
    graph = onnx.parser.parse_graph("g (float[n, 2, 96] x) => (float[n, 2, 3] y) { s = MatMul(x, w) y = Relu(s) }")
    graph.initializer.append(numpy_helper.from_array(w, "w"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = {} if precision == "exact" else {"precision": precision}
    program = graft.compile(model, ["llvm"], threads=2, cache=False, tuned=False, **options)
    x = np.random.default_rng(size).standard_normal((size, 2, 96)).astype(np.float32)
    tolerance = 1e-5 if precision == "exact" else 3e-2
    np.testing.assert_allclose(program(x), np.maximum(x @ w, 0), rtol=tolerance, atol=tolerance * 4)


def test_the_fewer_side_may_be_the_rows():
    graph = onnx.parser.parse_graph(
        "g (float[3, 256] q, float[500, 256] k) => (float[3, 500] y) { y = Gemm<transB = 1>(q, k) }"
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = graft.compile(model, ["llvm"], threads=1, cache=False, tuned=False)
    q, k = (np.random.default_rng(2).standard_normal((n, 256)).astype(np.float32) for n in (3, 500))
    np.testing.assert_allclose(program(q, k), q @ k.T, rtol=2e-5, atol=2e-5)
    assert strategies(program) == {"few_columns"}
