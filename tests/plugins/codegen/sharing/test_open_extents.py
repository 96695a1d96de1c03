"""Kernels that differ in extents alone: one function, which gets the extents from its tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import graft
from graft.plugins.llvm.backend import LlvmBackend
from graft.runtime.program import Program

BACKENDS = pytest.mark.parametrize("backend", ["llvm", "c_source"])


def model(inputs: str, outputs: str, nodes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22, "ai.onnx.preview.training" : 1]>
        g ({inputs}) => ({outputs}) {{ {nodes} }}"""
    )


def functions(program: Program) -> list[str]:
    return [call.function for call in program.description.procedures[0].calls if call.kind == "call"]


def feeds(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {one.name: rng.normal(size=one.shape).astype(np.float32) for one in program.inputs}


@BACKENDS
@pytest.mark.parametrize("threads", [1, 2])
def test_elementwise_kernels_of_any_shapes_are_one(backend: str, threads: int) -> None:
    shapes = ["301", "20,500", "3,4,5,7", "1,1,64", "70000"]
    inputs = ", ".join(f"float[{one}] a{n}, float[{one}] b{n}" for n, one in enumerate(shapes))
    nodes = " ".join(f"s{n} = Sub(a{n}, b{n}) y{n} = Mul(s{n}, a{n})" for n in range(len(shapes)))
    outputs = ", ".join(f"float[{one}] y{n}" for n, one in enumerate(shapes))
    program = graft.compile(model(inputs, outputs, nodes), [backend], strict=True, threads=threads, cache=False)
    assert len(functions(program)) == 5 and len(set(functions(program))) == 1
    given = feeds(program)
    for n in range(len(shapes)):
        a, b = given[f"a{n}"], given[f"b{n}"]
        np.testing.assert_array_equal(program.run(given)[f"y{n}"], (a - b) * a)


@BACKENDS
def test_kernels_of_rows_and_sums_of_rows_are_one_each(backend: str) -> None:
    shapes = [(4, 96, 14, 14), (4, 80, 20, 20), (4, 64, 17, 17)]
    inputs, outputs, nodes = [], [], []
    for n, (images, channels, height, width) in enumerate(shapes):
        image = f"float[{images},{channels},{height},{width}]"
        inputs.append(f"{image} x{n}, float[1,{channels},1,1] c{n}")
        outputs.append(f"{image} y{n}, float[1,{channels},1,1] z{n}")
        nodes.append(f"d{n} = Sub(x{n}, c{n}) y{n} = Relu(d{n}) z{n} = ReduceSum<keepdims = 1>(x{n}, axes)")
    axes = "axes = Constant<value_ints = [0, 2, 3]>() "
    program = graft.compile(
        model(", ".join(inputs), ", ".join(outputs), axes + " ".join(nodes)), [backend], strict=True, cache=False
    )
    assert len(functions(program)) == 6 and len(set(functions(program))) == 2
    given = feeds(program)
    found = program.run(given)
    for n in range(len(shapes)):
        np.testing.assert_array_equal(found[f"y{n}"], np.maximum(given[f"x{n}"] - given[f"c{n}"], 0))
        expected = given[f"x{n}"].astype(np.float64).sum((0, 2, 3), keepdims=True)
        np.testing.assert_allclose(found[f"z{n}"], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("first", "second", "nodes"),
    [
        pytest.param("8,64,7,7", "8,64,4,4", "y{n} = Sub(x{n}, c)", id="short rows"),
        pytest.param("64,92", "64,76", "y{n} = Transpose<perm = [1, 0]>(x{n})", id="transposing"),
        pytest.param("2,64,96", "2,96,64", "y{n} = Transpose<perm = [0, 2, 1]>(x{n})", id="several matrices"),
        pytest.param("2,64,96", "6,64,96", "y{n} = Pad(x{n}, sides)", id="many elements looked up"),
        pytest.param("2,4096", "2,8192", "y{n} = ReduceSum<keepdims = 0>(x{n})", id="few sums"),
        pytest.param(
            "512,128", "640,128", "a{n} = Constant<value_ints = [0]>() y{n} = ReduceSum(x{n}, a{n})", id="columns"
        ),
    ],
)
def test_kernels_that_want_numbers_keep_them(first: str, second: str, nodes: str) -> None:
    sides = "sides = Constant<value_ints = [0, 1, 0, 0, 0, 0]>()"
    text = " ".join([sides, *(nodes.format(n=n) for n in range(2))])
    source = model(f"float[{first}] x0, float[{second}] x1, float[1,64,1,1] c", "float y0, float y1", text)
    for output in source.graph.output:
        output.type.tensor_type.ClearField("shape")
    program = graft.compile(source, ["llvm"], strict=True, cache=False)
    assert len(set(functions(program))) == 2


@BACKENDS
def test_means_over_other_numbers_of_elements_are_one(backend: str) -> None:
    shapes = [(8, 64, 14, 14), (8, 96, 12, 12), (8, 80, 13, 13)]
    inputs = ", ".join(f"float[{','.join(map(str, shape))}] x{n}" for n, shape in enumerate(shapes))
    outputs = ", ".join(f"float[1,{shape[1]},1,1] y{n}" for n, shape in enumerate(shapes))
    nodes = " ".join(f"y{n} = ReduceMean(x{n}, axes)" for n in range(len(shapes)))
    text = model(inputs, outputs, f"axes = Constant<value_ints = [0, 2, 3]>() {nodes}")
    program = graft.compile(text, [backend], strict=True, cache=False)
    assert len(functions(program)) == 3 and len(set(functions(program))) == 1
    given = feeds(program)
    found = program.run(given)
    for n in range(len(shapes)):
        np.testing.assert_allclose(found[f"y{n}"], given[f"x{n}"].mean((0, 2, 3), keepdims=True), rtol=1e-5, atol=1e-6)


@BACKENDS
def test_transposes_of_whole_tiles_are_one(backend: str) -> None:
    shapes = [(32, 48), (96, 16), (160, 64)]
    inputs = ", ".join(f"float[{rows},{columns},1,1] x{n}" for n, (rows, columns) in enumerate(shapes))
    outputs = ", ".join(f"float[{columns},{rows},1,1] y{n}" for n, (rows, columns) in enumerate(shapes))
    nodes = " ".join(f"t{n} = Transpose<perm = [1, 0, 2, 3]>(x{n}) y{n} = Neg(t{n})" for n in range(len(shapes)))
    program = graft.compile(model(inputs, outputs, nodes), [backend], strict=True, cache=False)
    assert len(functions(program)) == 3 and len(set(functions(program))) == 1
    given = feeds(program)
    found = program.run(given)
    for n in range(len(shapes)):
        np.testing.assert_array_equal(found[f"y{n}"], -given[f"x{n}"].swapaxes(0, 1))


@BACKENDS
@pytest.mark.parametrize(
    ("shapes", "nodes", "expected"),
    [
        pytest.param(
            ["20,30,3,3", "40,18,3,3"],
            "s{n} = Slice(x{n}, minus, least, last, minus) y{n} = Transpose<perm = [1, 0, 2, 3]>(s{n})",
            lambda x: x[..., ::-1, ::-1].swapaxes(0, 1),
            id="mirrored and transposed",
        ),
        pytest.param(
            ["20,3,3", "40,3,3"],
            "y{n} = Slice(x{n}, first, second, last_of_three, minus)",
            lambda x: x[:, 2:0:-1, 1:2],
            id="looked up along an axis of one element",
        ),
        pytest.param(
            ["4,30,7,7", "8,12,7,7"],
            "y{n} = Pad(x{n}, sides)",
            lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))),
            id="padded",
        ),
        pytest.param(
            ["8,40,50", "8,33,64"], "y{n} = ReduceSum<keepdims = 0>(x{n}, zero)", lambda x: x.sum(0), id="few rows"
        ),
    ],
)
def test_axes_that_are_looked_up_stay_while_others_become_arguments(
    backend: str, shapes: list[str], nodes: str, expected: Callable[[np.ndarray], np.ndarray]
) -> None:
    constants = {
        "minus": [-1, -1], "least": [-9, -9], "last": [2, 3], "zero": [0], "sides": [0, 0, 1, 1, 0, 0, 1, 1],
        "first": [2, 1], "second": [0, 0], "last_of_three": [1, 2],
    }  # fmt: skip
    text = " ".join(f"{name} = Constant<value_ints = {values}>()" for name, values in constants.items())
    inputs = ", ".join(f"float[{one}] x{n}" for n, one in enumerate(shapes))
    source = model(inputs, "float y0, float y1", " ".join([text, *(nodes.format(n=n) for n in range(2))]))
    for output in source.graph.output:
        output.type.tensor_type.ClearField("shape")
    program = graft.compile(source, [backend], strict=True, cache=False)
    assert len(functions(program)) == 2 and len(set(functions(program))) == 1
    given = feeds(program)
    found = program.run(given)
    for n in range(2):
        np.testing.assert_allclose(found[f"y{n}"], expected(given[f"x{n}"]), rtol=1e-6, atol=1e-6)


def test_a_backend_that_cannot_say_variables_gets_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LlvmBackend, "shapes", "static")
    source = model("float[300] x0, float[500] x1", "float[300] y0, float[500] y1", "y0 = Sqrt(x0) y1 = Sqrt(x1)")
    assert len(set(functions(graft.compile(source, ["llvm"], strict=True, cache=False)))) == 2


def test_a_kernel_of_its_own_kind_keeps_its_numbers() -> None:
    program = graft.compile(model("float[300] x", "float[300] y", "y = Sqrt(x)"), ["llvm"], cache=False)
    (call,) = program.description.procedures[0].calls
    assert program.description.procedures[0].tensors[call.inputs[0]].storage == "input"


def test_what_may_be_written_over_its_operand_still_is() -> None:
    shapes = ["64,70", "50,80"]
    nodes = " ".join(f"s{n} = CumSum(x{n}, axis) y{n} = Tanh(s{n})" for n in range(2))
    source = model(
        ", ".join(f"float[{one}] x{n}" for n, one in enumerate(shapes)),
        ", ".join(f"float[{one}] y{n}" for n, one in enumerate(shapes)),
        f"axis = Constant<value_int = 0>() {nodes}",
    )
    procedure = graft.compile(source, ["llvm"], cache=False).description.procedures[0]
    tanh = [call for call in procedure.calls if "tanh" in call.function]
    assert len(tanh) == 2 and len({call.function for call in tanh}) == 1 and all(call.in_place for call in tanh)


@BACKENDS
def test_results_side_by_side_are_those_of_each_optimiser_step(backend: str) -> None:
    shapes, inputs, outputs, nodes = ["700", "40,50", "3,3,9,9"], ["float r, int64 t"], [], []
    for n, one in enumerate(shapes):
        inputs.append(f"float[{one}] w{n}, float[{one}] g{n}, float[{one}] v{n}")
        outputs.append(f"float[{one}] x{n}, float[{one}] u{n}")
        nodes.append(
            f'x{n}, u{n} = ai.onnx.preview.training.Momentum<alpha = 0.5, beta = 1.0, mode = "standard", '
            f"norm_coefficient = 0.25>(r, t, w{n}, g{n}, v{n})"
        )
    program = graft.compile(
        model(", ".join(inputs), ", ".join(outputs), " ".join(nodes)), [backend], strict=True, cache=False
    )
    assert len(functions(program)) == 3 and len(set(functions(program))) == 1
    given = {**feeds(program), "r": np.float32(0.125), "t": np.int64(3)}
    found = program.run(given)
    for n in range(len(shapes)):
        moved = 0.5 * given[f"v{n}"] + (given[f"g{n}"] + np.float32(0.25) * given[f"w{n}"])
        np.testing.assert_allclose(found[f"u{n}"], moved, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[f"x{n}"], given[f"w{n}"] - np.float32(0.125) * moved, rtol=1e-6, atol=1e-6)
