"""The main operators on random shapes and attributes, against onnx.reference and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from graft.core.operators.all import OPERATORS
from tests.core.operators.node_cases import evaluate, make_constant, node_of, refusal

OPSET = [helper.make_opsetid("", 23)]
EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)


def model_of(operator: str, arrays: dict[str, np.ndarray], outputs: list[str], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(operator, list(arrays), outputs, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
        if name
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs if name])
    return helper.make_model(graph, opset_imports=OPSET, ir_version=10)


def check(operator: str, *arrays: np.ndarray, rtol: float = 1e-4, **attributes: Any) -> None:
    """Compare the lowering with onnx.reference, which gives the expected outputs."""
    named = {f"x{number}": array for number, array in enumerate(arrays)}
    model = model_of(operator, named, ["y"], **attributes)
    compare(model, named, ReferenceEvaluator(model).run(None, named), rtol)


def compare(model: onnx.ModelProto, named: dict[str, np.ndarray], wanted: list[np.ndarray], rtol: float = 1e-4) -> None:
    wanted = [np.asarray(array) for array in wanted]
    for value, array in zip(model.graph.output, wanted, strict=True):
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, dtype, array.shape))
    view = node_of(model, tuple(array for name, array in named.items() if name), tuple(wanted))
    if refusal(view) is not None:
        make_constant(view, named)
    assert refusal(view) is None
    for result, expected in zip(evaluate(view, named), wanted, strict=True):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=1e-5)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


extent = st.integers(1, 5)
shapes = st.lists(extent, min_size=1, max_size=4)


@EXAMPLES
@given(shapes, st.data())
def test_broadcasting_is_that_of_numpy(shape: list[int], data: st.DataObject) -> None:
    first = [1 if data.draw(st.booleans()) else size for size in shape]
    second = [1 if data.draw(st.booleans()) else size for size in shape][data.draw(st.integers(0, len(shape))) :]
    check("Sub", normal(1, *first), normal(2, *second))


@EXAMPLES
@given(extent, extent, extent, st.lists(extent, max_size=2), st.data())
def test_products_are_those_of_numpy(m: int, k: int, n: int, batch: list[int], data: st.DataObject) -> None:
    left = [1 if data.draw(st.booleans()) else size for size in batch]
    right = [1 if data.draw(st.booleans()) else size for size in batch][data.draw(st.integers(0, len(batch))) :]
    check("MatMul", normal(1, *left, m, k), normal(2, *right, k, n))


@EXAMPLES
@given(
    extent, extent, extent, st.booleans(), st.booleans(), st.sampled_from([0.5, 1.0]), st.sampled_from([0.0, 1.0, 2.0])
)
def test_gemm_scales_turns_and_adds(
    m: int, k: int, n: int, turn_a: bool, turn_b: bool, alpha: float, beta: float
) -> None:
    a, b = normal(1, *((k, m) if turn_a else (m, k))), normal(2, *((n, k) if turn_b else (k, n)))
    check("Gemm", a, b, normal(3, n), transA=int(turn_a), transB=int(turn_b), alpha=alpha, beta=beta)


@EXAMPLES
@given(
    st.sampled_from([1, 2, 3]), st.integers(1, 2), st.integers(1, 2), st.tuples(*[st.integers(1, 3)] * 2),
    st.integers(1, 2), st.integers(1, 2), st.tuples(*[st.integers(0, 2)] * 4),
)  # fmt: skip
def test_convolution_has_groups_strides_dilations_and_pads(
    group: int, inputs: int, outputs: int, kernel: tuple[int, int], stride: int, dilation: int, pads: tuple[int, ...]
) -> None:
    x = normal(1, 2, group * inputs, 7, 8)
    w = normal(2, group * outputs, inputs, *kernel)
    attributes = {"strides": [stride, 1], "dilations": [1, dilation], "pads": list(pads), "group": group}
    check("Conv", x, w, normal(3, group * outputs), **attributes)


def run_onnxruntime(model: onnx.ModelProto, named: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs, all float32, as ONNX Runtime computes them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for value in model.graph.output:
        value.CopyFrom(helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray] = session.run(None, named)
    return outputs


@EXAMPLES
@given(
    st.sampled_from(["MaxPool", "AveragePool"]), st.tuples(*[st.integers(1, 3)] * 2), st.integers(1, 3),
    st.integers(1, 2), st.booleans(), st.booleans(), st.data(),
)  # fmt: skip
def test_pools_have_strides_pads_dilations_and_rounding(
    operator: str, kernel: tuple[int, int], stride: int, dilation: int, ceil: bool, include: bool, data: st.DataObject
) -> None:
    pads = [data.draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
    attributes: dict[str, Any] = {"kernel_shape": list(kernel), "strides": [stride, 1], "pads": pads}
    attributes |= {"ceil_mode": int(ceil), "dilations": [dilation, 1]}
    if operator == "AveragePool":
        attributes["count_include_pad"] = int(include)
    named = {"x": normal(1, 1, 2, 8, 6)}
    model = model_of(operator, named, ["y"], **attributes)
    compare(model, named, run_onnxruntime(model, named))


@EXAMPLES
@given(shapes, st.data(), st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"]))
def test_reductions_take_any_axes(shape: list[int], data: st.DataObject, operator: str) -> None:
    axes = data.draw(st.lists(st.integers(-len(shape), -1), unique=True, max_size=len(shape)))
    check(operator, normal(1, *shape), np.array(axes, np.int64), keepdims=int(data.draw(st.booleans())))


@EXAMPLES
@given(shapes, st.data(), st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]))
def test_softmax_takes_any_axis(shape: list[int], data: st.DataObject, operator: str) -> None:
    check(operator, normal(1, *shape), axis=data.draw(st.integers(-len(shape), len(shape) - 1)))


@EXAMPLES
@given(shapes, st.data())
def test_layer_normalization_takes_any_axis(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    check("LayerNormalization", normal(1, *shape), normal(2, *shape[axis:]), normal(3, *shape[axis:]), axis=axis)


@EXAMPLES
@given(shapes, st.data())
def test_reshape_keeps_the_order_of_elements(shape: list[int], data: st.DataObject) -> None:
    target = data.draw(st.permutations([*shape, 1]))
    check("Reshape", normal(1, *shape), np.array(target, np.int64))


@EXAMPLES
@given(shapes, st.data())
def test_transpose_takes_any_order(shape: list[int], data: st.DataObject) -> None:
    check("Transpose", normal(1, *shape), perm=data.draw(st.permutations(range(len(shape)))))


@EXAMPLES
@given(st.integers(1, 9), st.integers(-11, 11), st.integers(-11, 11), st.sampled_from([-3, -1, 1, 2]))
def test_slice_cuts_as_numpy_does(size: int, start: int, end: int, step: int) -> None:
    numbers = (np.array([value], np.int64) for value in (start, end, 1, step))
    check("Slice", normal(1, 2, size), *numbers)


@EXAMPLES
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 1))
def test_concat_joins_parts_of_any_size(sizes: list[int], axis: int) -> None:
    check("Concat", *(normal(size, *((size, 3) if axis == 0 else (3, size))) for size in sizes), axis=axis)


@EXAMPLES
@given(st.sampled_from(["constant", "reflect", "edge", "wrap"]), st.tuples(*[st.integers(0, 2)] * 4))
def test_pad_has_its_modes(mode: str, pads: tuple[int, ...]) -> None:
    check("Pad", normal(1, 3, 4), np.array(pads, np.int64), mode=mode)


@EXAMPLES
@given(shapes, st.data())
def test_gather_takes_positions_from_the_end(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    positions = data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4))
    check("Gather", normal(1, *shape), np.array(positions, np.int64), axis=axis)


@EXAMPLES
@given(st.integers(-9, 9), st.integers(-9, 9).filter(bool), st.sampled_from([np.int8, np.int32, np.int64]))
def test_integer_remainders_have_the_sign_onnx_says(x: int, y: int, dtype: type) -> None:
    pair = np.array([x], dtype), np.array([y], dtype)
    check("Mod", *pair)
    check("Mod", *pair, fmod=1)


@EXAMPLES
@given(st.integers(-3, 3), st.integers(0, 70))
def test_integer_powers_are_exact_and_wrap(base: int, exponent: int) -> None:
    arrays = np.array([base], np.int64), np.array([exponent], np.int64)
    model = model_of("Pow", {"x": arrays[0], "n": arrays[1]}, ["y"])
    expected = (base**exponent + 2**63) % 2**64 - 2**63
    view = node_of(model, arrays, arrays[:1])
    for value in view.node.outputs:
        value.dtype = view.node.inputs[0].dtype
    assert evaluate(view, {"x": arrays[0], "n": arrays[1]})[0].tolist() == [expected]


DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


@settings(EXAMPLES, max_examples=12)
@given(
    st.sampled_from(["RNN", "GRU", "LSTM"]), st.sampled_from(sorted(DIRECTIONS)), st.integers(1, 5),
    st.sampled_from([5, 17]), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_recurrent_layers_agree_with_onnxruntime(
    operator: str, direction: str, batch: int, hidden: int, lengths: bool, start: bool, late: bool
) -> None:
    steps, inputs, count = 3, 2, DIRECTIONS[direction]
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]
    named = {
        "x": normal(1, steps, batch, inputs),
        "w": normal(2, count, gates * hidden, inputs),
        "r": normal(3, count, gates * hidden, hidden) * 0.3,
        "b": normal(4, count, 2 * gates * hidden),
    }
    if lengths:
        named["n"] = (np.arange(batch) % steps + 1).astype(np.int32)
    if start:
        named.setdefault("n", np.full(batch, steps, np.int32))
        named["h"] = normal(5, count, batch, hidden)
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if operator == "GRU":
        attributes["linear_before_reset"] = int(late)
    outputs = ["y", "yh", "yc"] if operator == "LSTM" else ["y", "yh"]
    model = model_of(operator, named, outputs, **attributes)
    compare(model, named, run_onnxruntime(model, named))


@pytest.mark.parametrize(
    ("operator", "domain"), sorted((one.name, one.domain) for one in OPERATORS if one.lower is not None)
)
def test_every_operator_with_a_lowering_is_one_of_onnx(operator: str, domain: str) -> None:
    assert onnx.defs.has(operator, domain)


def test_an_index_outside_its_axis_stays_in_the_array() -> None:
    data, indices = normal(1, 3, 2), np.array([7, -9], np.int64)
    model = model_of("Gather", {"x": data, "i": indices}, ["y"])
    view = node_of(model, (data, indices), (data[:2],))
    view.node.outputs[0].dtype = view.node.inputs[0].dtype
    np.testing.assert_array_equal(evaluate(view, {"x": data, "i": indices})[0], data[[2, 0]])
