"""Strategies for devices: which is taken, and that kernels in the emulator compute what the reference does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from graft.plugins.cuda.backend import CudaBackend
from graft.plugins.cuda.strategies.attention import USUAL
from tests.plugins.cuda.graphs import graph, node, ran

RANDOM = np.random.default_rng(7)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def given(model: onnx.ModelProto, **sizes: int) -> dict[str, np.ndarray]:
    """Random inputs; dimensions with names take their sizes."""
    found = {}
    for value in model.graph.input:
        shape = [one.dim_value or sizes[one.dim_param] for one in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        small = RANDOM.integers(0, 100, shape).astype(dtype) if dtype.kind in "iu" else None
        found[value.name] = RANDOM.standard_normal(shape).astype(dtype) if small is None else small
    return found


def product(rows: int | str, terms: int, columns: int, dtype: str = "float32") -> onnx.ModelProto:
    weights = RANDOM.standard_normal((terms, columns)).astype(dtype)
    bias = RANDOM.standard_normal(columns).astype(dtype)
    nodes = [node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("Relu", "c")]
    return graph(nodes, {"x": (dtype, [rows, terms])}, {"w": weights, "b": bias})


def convolution(image: list[int | str], weights: list[int], **attributes: Any) -> onnx.ModelProto:
    constants = {"w": numbers(*weights), "b": numbers(weights[0])}
    return graph([node("Conv", "x w b", **attributes)], {"x": ("float32", image)}, constants)


def attention(
    queries: int | str,
    keys: int | str,
    features: int,
    dtype: str = "float32",
    *,
    masked: bool = False,
    cleared: bool = False,
) -> onnx.ModelProto:
    shapes: dict[str, tuple[str, list[int | str]]] = {
        "q": (dtype, [1, 2, queries, features]),
        "k": (dtype, [1, 2, features, keys]),
        "v": (dtype, [1, 2, keys, features]),
    }
    nodes = [node("MatMul", "q k", "s"), node("Mul", "s c", "t")]
    if masked:
        shapes["m"] = (dtype, [queries, keys])
        nodes.append(node("Add", "t m", "u"))
    nodes.append(node("Softmax", "u" if masked else "t", "p", axis=-1))
    if cleared:
        nodes += [node("IsNaN", "p", "n"), node("Where", "n z p", "w")]
    nodes.append(node("MatMul", "w v" if cleared else "p v"))
    zero = {"z": np.array(0, dtype)} if cleared else {}
    return graph(nodes, shapes, {"c": np.array(features**-0.5, dtype), **zero})


X = {"x": ("float32", [6, 37, 100])}
ANY = {"x": ("float32", ["n", "m"])}
FLOAT_CASES = {
    "softmax": ("cuda.rows", graph([node("Softmax", "x")], X), {}),
    "normalization": (
        "cuda.rows",
        graph([node("LayerNormalization", "x s b")], X, {"s": numbers(100), "b": numbers(100)}),
        {},
    ),
    "sums of rows": ("cuda.rows", graph([node("ReduceSum", "x a")], X, {"a": np.array([2])}), {}),
    "sums of columns": ("cuda.plain", graph([node("ReduceSum", "x a")], X, {"a": np.array([0])}), {}),
    "rows of any length": ("cuda.rows", graph([node("Softmax", "x")], ANY), {"n": 5, "m": 70}),
    "elements": ("cuda.elements", graph([node("Add", "x b", "a"), node("Gelu", "a")], X, {"b": numbers(100)}), {}),
    "transposition": ("cuda.elements", graph([node("Transpose", "x", perm=[0, 2, 1])], X), {}),
    "product": ("cuda.product", product(100, 48, 70), {}),
    "product with a rest": ("cuda.product", product(37, 45, 66), {}),
    "product of any height": ("cuda.product", product("n", 64, 50), {"n": 70}),
    "narrow product": ("cuda.product", product(2, 1024, 40), {}),
    "convolution": ("cuda.product", convolution([1, 8, 14, 14], [24, 8, 3, 3], pads=[1, 1, 1, 1]), {}),
    "strided convolution": ("cuda.product", convolution([2, 3, 21, 21], [16, 3, 7, 7], strides=[2, 2]), {}),
    "convolution by groups": ("cuda.product", convolution([1, 32, 10, 10], [32, 8, 3, 3], group=4), {}),
    "convolution of any height": (
        "cuda.product",
        convolution([1, 8, "h", 14], [24, 8, 3, 3], pads=[1, 0, 1, 0]),
        {"h": 9},
    ),
    "attention": ("cuda.attention", attention(64, 64, 64), {}),
    "attention with a mask and rests": ("cuda.attention", attention(50, 70, 32, masked=True), {}),
    "attention of any length": ("cuda.attention", attention("l", "s", 64), {"l": 65, "s": 90}),
    "selection": ("cuda.in_order", graph([node("CumSum", "x a")], X, {"a": np.array(1)}), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_a_kernel_computes_what_the_reference_does(name: str) -> None:
    strategy, model, sizes = FLOAT_CASES[name]
    found = ran(model, given(model, **sizes))
    assert found.error < 2e-6
    assert strategy in [schedule["strategy"] for schedule in found.schedules]


PRECISE = {"bf16": ("mma_bfloat16", 2.0**-7), "fp16": ("mma_float16", 2.0**-9), "tf32": ("mma_tf32", 2.0**-8)}


@pytest.mark.parametrize("precision", PRECISE)
@pytest.mark.parametrize("kind", ["product", "convolution"])
def test_products_are_rounded_as_requested(kind: str, precision: str) -> None:
    instruction, tolerance = PRECISE[precision]
    model = product(100, 64, 72) if kind == "product" else convolution([1, 16, 9, 9], [24, 16, 3, 3])
    found = ran(model, given(model), precision=precision)
    assert 1e-5 < found.error < tolerance
    assert [schedule.get("instruction") for schedule in found.schedules] == [instruction]


def test_attention_by_tensor_instructions_is_near_that_of_float32() -> None:
    model = attention(70, 130, 64, masked=True)
    assert 1e-5 < ran(model, given(model), precision="bf16").error < 2.0**-6


STAGED = {
    "threads": (attention(40, 200, 32), {}, 2e-6),
    "threads, any length": (attention("l", "s", 32), {"l": 33, "s": 150}, 2e-6),
    "tensor instructions": (attention(40, 200, 32, "float16", masked=True), {}, 4e-3),
    "tensor instructions, no rest": (attention(64, 192, 64, "float16"), {}, 4e-3),
}


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("name", STAGED)
def test_attention_is_right_with_any_stages(name: str, stages: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (model, sizes, tolerance), own = STAGED[name], CudaBackend.schedule
    wanted = replace(USUAL, stages=stages)
    monkeypatch.setattr(CudaBackend, "schedule", lambda self, kernel, target, _: own(self, kernel, target, wanted))
    monkeypatch.setenv("GRAFT_EMULATOR_SEED", str(seed))
    found = ran(model, given(model, **sizes))
    assert found.error < tolerance
    assert found.schedules[0].get("stages", 1) == stages


@pytest.mark.filterwarnings("ignore:invalid value")
def test_queries_without_keys_get_nothing_where_weights_of_nan_are_0() -> None:
    model = attention(50, 150, 32, masked=True, cleared=True)
    inputs = given(model)
    inputs["m"][3], inputs["m"][49], inputs["q"][0, 1, 7, 2] = -np.inf, -np.inf, np.nan
    inputs["m"][4, :140] = -np.inf
    found = ran(model, inputs)
    assert found.error < 2e-6 and not found.ours[:, :, [3, 49]].any() and not found.ours[0, 1, 7].any()
    assert [schedule["strategy"] for schedule in found.schedules] == ["cuda.attention"]


def test_products_of_float16_are_summed_in_float32() -> None:
    model = product(130, 64, 72, "float16")
    found = ran(model, given(model))
    assert found.error < 2e-3 and found.schedules[0]["instruction"] == "mma_float16"


@pytest.mark.parametrize("left", ["uint8", "int8"])
def test_products_of_bytes_are_exact(left: str) -> None:
    weights = RANDOM.integers(-127, 127, (96, 64)).astype(np.int8)
    model = graph([node("MatMulInteger", "x w")], {"x": (left, [70, 96])}, {"w": weights})
    found = ran(model, given(model))
    np.testing.assert_array_equal(found.ours, found.theirs)
    assert found.schedules[0]["instruction"] == ("mma_int8" if left == "int8" else "mma_uint8_int8")


def test_terms_of_a_narrow_product_are_split_among_blocks() -> None:
    model = product(64, 4096, 64)
    found = ran(model, given(model))
    assert found.error < 2e-6 and found.schedules[0]["splits"] == 32
