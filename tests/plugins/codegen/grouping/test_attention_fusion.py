"""Attention in one kernel and Softmax, against onnx.reference; attention also with its operators apart."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.machine.target import CompileOptions, host_target
from graft.plugins.llvm.backend import LlvmBackend
from tests.plugins.llvm.execute import execute
from tests.plugins.llvm.graphs import HEADER, region_of


def run(text: str, feeds: list[np.ndarray], load_image: Any, constants: Any = None, fused: bool = True) -> np.ndarray:
    target = replace(host_target(), without=frozenset(() if fused else ("attention",)))
    compiled = LlvmBackend().compile(region_of(text, constants), CompileOptions(target))
    assert (len(compiled.procedure.calls) == 1) is fused
    (result,) = execute(compiled, feeds, load_image)
    return result


def expected(text: str, feeds: list[np.ndarray], constants: Any = None) -> np.ndarray:
    evaluator = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {text}"))
    named = dict(zip(evaluator.input_names, feeds, strict=False))
    return np.asarray(evaluator.run(None, {**named, **(constants or {})})[0])


def graph(queries: int, keys: int, size: int, features: int, heads: int, mask: str) -> str:
    return (
        f"g (float[1,{queries},{heads},{size}] q, float[1,{keys},{heads},{size}] k,"
        f" float[1,{keys},{heads},{features}] v, float[{mask}] m, float s) => (float[1,{queries},{heads},{features}] y)"
        " { a = Transpose <perm = [0,2,1,3]> (q)  b = Transpose <perm = [0,2,3,1]> (k)"
        " c = Transpose <perm = [0,2,1,3]> (v)  d = MatMul (a, b)  e = Mul (d, s)  f = Add (e, m)"
        " g = Softmax (f)  h = MatMul (g, c)  y = Transpose <perm = [0,2,1,3]> (h) }"
    )


extents = st.integers(2, 70)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queries=extents, keys=extents, size=extents, features=extents, heads=st.integers(1, 3), whole=st.booleans())
def test_attention_of_any_shape_is_computed(
    queries: int, keys: int, size: int, features: int, heads: int, whole: bool, load_image: Any
) -> None:
    mask = (1, 1, queries if whole else 1, keys)
    text = graph(queries, keys, size, features, heads, ",".join(map(str, mask)))
    random = np.random.default_rng(queries)
    shapes = [(1, queries, heads, size), (1, keys, heads, size), (1, keys, heads, features), mask]
    feeds = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    scale = {"s": np.float32(0.3)}
    result = run(text, feeds, load_image, scale)
    np.testing.assert_allclose(result, expected(text, feeds, scale), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result, run(text, feeds, load_image, scale, fused=False), rtol=1e-4, atol=1e-5)


PLAIN = (
    "g (float[2,19,8] q, float[2,8,40] k, float[2,40,24] v, float[19,40] m) => (float[2,19,24] y) {"
    " d = MatMul (q, k)  f = Add (d, m)  g = Softmax (f)  y = MatMul (g, v) }"
)


def plain_feeds() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = [(2, 19, 8), (2, 8, 40), (2, 40, 24), (19, 40)]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -90.0], ids=["infinite", "lowest", "denormal"])
def test_masked_keys_have_no_weight(hidden: float, load_image: Any) -> None:
    feeds = plain_feeds()
    feeds[3] = np.triu(np.full((19, 40), hidden, np.float32), 1)
    np.testing.assert_allclose(run(PLAIN, feeds, load_image), expected(PLAIN, feeds), rtol=1e-4, atol=1e-5)


def test_a_row_without_any_key_is_not_a_number(load_image: Any) -> None:
    feeds = plain_feeds()
    feeds[3][4] = -np.inf
    result = run(PLAIN, feeds, load_image)
    assert np.isnan(result[:, 4]).all()
    assert not np.isnan(np.delete(result, 4, axis=1)).any()


def test_a_row_with_a_nan_is_not_a_number(load_image: Any) -> None:
    feeds = plain_feeds()
    feeds[0][1, 7, 3] = np.nan
    result = run(PLAIN, feeds, load_image)
    assert np.isnan(result[1, 7]).all()
    assert np.isnan(result).sum() == 24


def test_large_scores_do_not_overflow(load_image: Any) -> None:
    feeds = plain_feeds()
    feeds[3] *= 1e4
    np.testing.assert_allclose(run(PLAIN, feeds, load_image), expected(PLAIN, feeds), rtol=1e-4, atol=1e-5)


def test_attention_in_double_precision_is_computed(load_image: Any) -> None:
    text = PLAIN.replace("float[", "double[")
    feeds = [array.astype(np.float64) for array in plain_feeds()]
    np.testing.assert_allclose(run(text, feeds, load_image), expected(text, feeds), rtol=1e-12)


def test_keys_and_values_that_broadcast_over_heads_are_read_in_place(load_image: Any) -> None:
    text = (
        "g (float[2,3,19,16] q, float[2,1,16,33] k, float[2,1,33,16] v) => (float[2,3,19,16] y) {"
        " d = MatMul (q, k)  g = Softmax (d)  y = MatMul (g, v) }"
    )
    random = np.random.default_rng(1)
    feeds = [random.standard_normal(s).astype(np.float32) for s in [(2, 3, 19, 16), (2, 1, 16, 33), (2, 1, 33, 16)]]
    np.testing.assert_allclose(run(text, feeds, load_image), expected(text, feeds), rtol=1e-4, atol=1e-5)


def test_softmax_gives_zero_instead_of_denormal_numbers(load_image: Any) -> None:
    text = "g (float[1,5] x) => (float[1,5] y) { y = Softmax (x) }"
    x = np.array([[3.0, -77.0, -87.0, -90.0, -np.inf]], np.float32)
    result = run(text, [x], load_image)
    np.testing.assert_allclose(result[0, :2], [1.0, np.exp(-80.0)], rtol=1e-5)
    assert (result[0, 2:] == 0.0).all()


VARYING = (
    "g (float[b,s,3,16] q, float[b,t,3,16] k, float[b,t,3,20] v, float[b,1,1,t] m) => (float[b,s,3,20] y)"
    " <float c = {0.25}> { qt = Transpose <perm = [0,2,1,3]> (q)  kt = Transpose <perm = [0,2,3,1]> (k)"
    " vt = Transpose <perm = [0,2,1,3]> (v)  d = MatMul (qt, kt)  e = Mul (d, c)  f = Add (e, m)"
    " w = Softmax (f)  z = MatMul (w, vt)  y = Transpose <perm = [0,2,1,3]> (z) }"
)


def varying_feeds(batch: int, queries: int, keys: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"q": (queries, 3, 16), "k": (keys, 3, 16), "v": (keys, 3, 20), "m": (1, 1, keys)}
    return {name: random.standard_normal((batch, *shape)).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def varying() -> graft.Program:
    return graft.compile(onnx.parser.parse_model(f"{HEADER} {VARYING}"), backends=["llvm"], threads=1)


def test_attention_of_any_length_is_one_kernel() -> None:
    compiled = LlvmBackend().compile(region_of(VARYING), CompileOptions(host_target()))
    assert [call.schedule["strategy"] for call in compiled.procedure.calls] == ["fused_attention"]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 37), (1, 300, 5), (1, 37, 300), (2, 16, 16), (1, 0, 4), (1, 4, 0)])
def test_attention_of_any_length_is_computed(varying: graft.Program, sizes: tuple[int, int, int]) -> None:
    feeds = varying_feeds(*sizes)
    evaluator = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {VARYING}"))
    wanted = np.zeros((*sizes[:2], 3, 20)) if 0 in sizes else evaluator.run(None, feeds)[0]
    np.testing.assert_allclose(varying.run(feeds)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_a_row_without_any_key_is_not_a_number_at_any_length(varying: graft.Program) -> None:
    feeds = varying_feeds(2, 5, 300)
    feeds["m"][1] = -np.inf
    feeds["m"][0, ..., :290] = -np.inf
    result = varying.run(feeds)["y"]
    assert np.isnan(result[1]).all()
    assert not np.isnan(result[0]).any()


SAFE = VARYING.replace("w = Softmax (f)", "p = Softmax (f)  n = IsNaN (p)  w = Where (n, o, p)").replace(
    "<float c = {0.25}>", "<float c = {0.25}, float o = {0.0}>"
)
"""Attention as PyTorch writes it where masks may leave a query no key."""


@pytest.mark.parametrize("sizes", [(2, 5, 37), (2, 300, 7), (2, 3, 700), (2, 0, 4), (2, 4, 0)])
@pytest.mark.parametrize("varies", [True, False], ids=["varying", "fixed"])
def test_weights_of_nan_become_0_in_one_kernel(sizes: tuple[int, int, int], varies: bool) -> None:
    batch, queries, keys = sizes
    text = SAFE if varies else SAFE.replace("[b,", "[2,").replace(",s,", f",{queries},").replace(",t,", f",{keys},")
    text = text if varies else text.replace(",t]", f",{keys}]").replace("[2,s,", f"[2,{queries},")
    program = graft.compile(onnx.parser.parse_model(f"{HEADER} {text}"), backends=["llvm"], threads=1)
    feeds = varying_feeds(*sizes)
    if queries and keys:
        feeds["m"][1] = -np.inf  # no key
        feeds["q"][0, 0, 1, 2] = np.nan  # a row of NaN
        feeds["k"][0, keys - 1, 2, 5] = np.nan  # rows of NaN, known only from the last key on
        feeds["v"][0, 0, 0, 3], feeds["v"][0, 0, 2, 4] = np.inf, np.nan  # 0 times which is NaN
    wanted = np.zeros((batch, queries, 3, 20))
    if 0 not in sizes:
        with np.errstate(invalid="ignore"):
            wanted = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {text}")).run(None, feeds)[0]
    np.testing.assert_allclose(program.run(feeds)["y"], wanted, rtol=1e-4, atol=1e-5)
    if 0 not in sizes:
        assert len(program.description.procedures[0].calls) == 1
