"""Sums over nothing, and one value in several places of a node: valid models that schedules must not trip over."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.errors import ModelError
from tests.plugins.llvm.models import model_of

F = np.float32
RANDOM = np.random.default_rng(5)


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F)


def run(operator: str, inputs: dict[str, np.ndarray], **settings: Any) -> Any:
    program = graft.compile(model_of(operator, inputs, **settings), ["llvm"], threads=1, strict=True)
    return program(*inputs.values())


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize(
    ("operator", "left", "right", "shape", "attributes"),
    [
        ("MatMul", (3, 0), (0, 4), (3, 4), {}),
        ("MatMul", (2, 3, 0), (0, 4), (2, 3, 4), {}),
        ("MatMul", (0,), (0,), (), {}),
        ("Gemm", (0, 3), (4, 0), (3, 4), {"transA": 1, "transB": 1}),
        ("Conv", (1, 0, 5, 5), (2, 0, 3, 3), (1, 2, 3, 3), {}),
        ("Einsum", (3, 0), (0, 4), (3, 4), {"equation": "ij,jk->ik"}),
    ],
)
def test_a_product_over_no_terms_is_zero(
    operator: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    shape: tuple[int, ...],
    attributes: dict[str, Any],
    constant: bool,
) -> None:
    fixed = {"b": random(*right)}
    given = {"a": random(*left), **({} if constant else fixed)}
    result = run(operator, given, constants=fixed if constant else {}, **attributes)
    np.testing.assert_array_equal(result, np.zeros(shape, F))


def test_gemm_over_no_terms_is_its_bias() -> None:
    bias = random(4)
    result = run("Gemm", {"a": random(3, 0)}, constants={"b": random(0, 4), "c": bias}, beta=0.5)
    np.testing.assert_allclose(result, np.broadcast_to(0.5 * bias, (3, 4)))


def test_a_convolution_of_no_channels_is_its_bias() -> None:
    bias = random(2)
    result = run("Conv", {"x": random(1, 0, 5, 5)}, constants={"w": random(2, 0, 3, 3), "b": bias})
    np.testing.assert_array_equal(result, np.broadcast_to(bias.reshape(1, 2, 1, 1), (1, 2, 3, 3)))


def test_integer_products_over_no_terms_are_zero() -> None:
    result = run("MatMulInteger", {"a": np.zeros((3, 0), np.uint8), "b": np.zeros((0, 4), np.int8)})
    np.testing.assert_array_equal(result, np.zeros((3, 4), np.int32))


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_one_constant_may_be_both_weights_of_a_recurrent_layer(kind: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    weights, x = random(1, gates * 4, 4), random(3, 2, 4)
    settings = {"order": ["x", "w", "r"], "hidden_size": 4}
    apart = run(kind, {"x": x}, constants={"w": weights, "r": weights.copy()}, **settings)
    together = run(kind, {"x": x}, constants={"w": weights}, order=["x", "w", "w"], hidden_size=4)
    np.testing.assert_allclose(together, apart, rtol=1e-5, atol=1e-6)


def test_attention_over_flat_heads_gives_its_caches() -> None:
    q, k, v = random(2, 3, 8), random(2, 4, 8), random(2, 4, 8)
    past_k, past_v = random(2, 2, 5, 4), random(2, 2, 5, 4)
    inputs = {"q": q, "k": k, "v": v, "pk": past_k, "pv": past_v}
    outputs = ("y", "keys", "values")
    result, keys, values = run(
        "Attention", inputs, outputs=outputs, order=["q", "k", "v", "", "pk", "pv"], q_num_heads=2, kv_num_heads=2
    )
    by_head = [x.reshape(2, -1, 2, 4).transpose(0, 2, 1, 3) for x in (q, k, v)]
    np.testing.assert_array_equal(keys, np.concatenate([past_k, by_head[1]], 2))
    np.testing.assert_array_equal(values, np.concatenate([past_v, by_head[2]], 2))
    scores = np.exp(by_head[0] @ keys.swapaxes(2, 3) / 2)
    expected = scores / scores.sum(-1, keepdims=True) @ values
    np.testing.assert_allclose(result, expected.transpose(0, 2, 1, 3).reshape(2, 3, 8), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_wider_than_the_padded_image_is_refused(operator: str) -> None:
    model = model_of(operator, {"x": random(1, 1, 3, 3)}, kernel_shape=[7, 3], pads=[1, 0, 1, 0])
    with pytest.raises(ModelError) as caught:
        graft.compile(model, ["llvm"])
    assert str(caught.value) == (
        f"{operator} (node 'it'): its result 'y' would have the shape [1,1,-1,1]; a window is wider than the padded "
        "image, or more is cut off than there is"
    )


def test_a_window_that_nowhere_fits_gives_no_elements() -> None:
    x = random(1, 1, 3, 3)
    assert run("MaxPool", {"x": x}, kernel_shape=[4, 3]).shape == (1, 1, 0, 1)


@pytest.mark.parametrize(
    ("value", "node", "shape"),
    [
        ("float[s,4,0] x", "Constant <value_ints = [1]> () y = ReduceSum (x, c)", (3, 1, 0)),
        ("float[s,1,2,2] x", "Identity (x) y = MaxPool <kernel_shape = [3, 3]> (c)", (3, 1, 0, 0)),
        ("float[s,1,2,2] x", "Identity (x) y = AveragePool <kernel_shape = [3, 1], ceil_mode = 1> (c)", (3, 1, 0, 2)),
    ],
)
@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_sums_without_a_result_have_no_loops(value: str, node: str, shape: tuple[int, ...], backend: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 22]> g ({value}) => (y) {{ c = {node} }}'
    model = onnx.parser.parse_model(text.replace("(y)", f"(float[{','.join('abcd'[: len(shape)])}] y)"))
    program = graft.compile(model, [backend], threads=1, strict=True)
    extents = [3, *(extent for extent in program.inputs[0].shape[1:] if isinstance(extent, int))]
    assert program(np.ones(extents, F)).shape == shape
