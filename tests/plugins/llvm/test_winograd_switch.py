"""Winograd's algorithm in whole programs: switched off, and on several threads."""

from collections.abc import Collection

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graft
from graft.runtime.program import Program

SHAPE = (1, 48, 27, 30)
IMAGE = np.random.default_rng(7).standard_normal(SHAPE, np.float32)


def many_channels() -> onnx.ModelProto:
    """Conv of 512 channels of 16 x 16 pixels: long sums."""
    weights = np.random.default_rng(2).standard_normal((64, 512, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, 16, 16))
        for name, channels in (("x", 512), ("y", 64))
    ]
    tensors = [onnx.numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(nodes, "convolution", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def two_convolutions() -> onnx.ModelProto:
    """Conv, Relu, Conv, addition of the input, Relu: 48 channels of 27 x 30 pixels throughout."""
    random = np.random.default_rng(1)
    weights = [(random.standard_normal((48, 48, 3, 3)) / 20).astype(np.float32) for _ in range(2)]
    tensors = [onnx.numpy_helper.from_array(array, f"w{number}") for number, array in enumerate(weights)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "x"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "convolutions", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def program(threads: int = 1, without: Collection[str] = ()) -> Program:
    return graft.compile(two_convolutions(), ["llvm"], threads=threads, strict=True, without=without)


@pytest.fixture(scope="module")
def usual() -> Program:
    return program()


def weight_bytes(program: Program) -> int:
    return sum(array.nbytes for array in program.description.constants.values())


def test_switching_winograd_off_keeps_the_answer(usual: Program) -> None:
    direct = program(without={"winograd"})
    assert weight_bytes(usual) == 4 * weight_bytes(direct)
    np.testing.assert_allclose(usual(IMAGE), direct(IMAGE), rtol=1e-4, atol=1e-4)


def test_two_threads_give_the_same_bits(usual: Program) -> None:
    np.testing.assert_array_equal(program(threads=2)(IMAGE), usual(IMAGE))


def test_sums_of_many_channels_are_about_as_exact_as_direct_ones() -> None:
    model = many_channels()
    image = np.maximum(np.random.default_rng(3).standard_normal((1, 512, 16, 16)), 0).astype(np.float32)
    weights = onnx.numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    patches = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    exact = np.einsum("ocij,ncyxij->noyx", weights, patches.astype(np.float64), optimize=True)
    found = [
        graft.compile(model, ["llvm"], threads=1, strict=True, without=without)
        for without in (set[str](), {"winograd"})
    ]
    assert weight_bytes(found[0]) > 3 * weight_bytes(found[1])  # 36 numbers of a window of 9, which tiles may pad
    ours, direct = (float(np.sqrt(np.mean((program(image) - exact) ** 2))) for program in found)
    assert ours < 4 * direct, (ours, direct)


def test_an_infinity_reaches_no_further_than_the_tiles_that_hold_it(usual: Program) -> None:
    """Its differences are NaN: more elements than those that it is a term of, but none of another tile."""
    given = IMAGE.copy()
    given[0, 3, 12, 12] = np.inf
    found, direct = usual(given), program(without={"winograd"})(given)
    assert np.isnan(found).any() and not np.isfinite(found[~np.isfinite(direct)]).any()
    reached = np.argwhere(~np.isfinite(found[0]).all(0))
    assert reached.min() >= 12 - 2 * 6 and reached.max() <= 12 + 2 * 6
    finite = np.isfinite(found)
    np.testing.assert_allclose(found[finite], direct[finite], rtol=1e-4, atol=1e-4)
