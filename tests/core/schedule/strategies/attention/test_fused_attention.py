"""Attention as scheduled, run by the interpreter, against its stages."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target, target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.operators.products.contraction import element, product
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.strategies.attention import fused_attention
from graft.core.schedule.strategies.attention.fused_attention import schedule_attention
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Buffer
from graft.core.tensor_ir.verifying.verifier import verify
from graft.runtime.dtypes import numpy_dtype

WIDE = target_named("x86-64-v4")
MIDDLE = target_named("x86-64-v3")
NARROW = target_named("x86-64")


def buffer(name: str, *shape: int) -> Buffer:
    return Buffer(name, "float32", tuple(map(b.index, shape)))


def attention_kernel(heads: int, queries: int, keys: int, size: int, features: int, transposed: bool = False) -> Kernel:
    """Scores, a mask, Softmax and the product with the values; keys are ``[keys, size]`` if ``transposed``."""
    q, v, mask = buffer("q", heads, queries, size), buffer("v", heads, keys, features), buffer("m", queries, keys)
    k = buffer("k", heads, keys, size) if transposed else buffer("k", heads, size, keys)
    turn = buffer("turn", heads, size, keys)
    scores, masked = buffer("scores", heads, queries, keys), buffer("masked", heads, queries, keys)
    top, total = buffer("top", heads, queries), buffer("total", heads, queries)
    weights, out = buffer("weights", heads, queries, keys), buffer("out", heads, queries, features)
    before = [b.compute(turn, lambda i: b.load(k, i[0], i[2], i[1]))] if transposed else []

    def power(row: list, key: object) -> object:
        return b.intrinsic("exp", b.subtract(b.load(masked, *row, key), b.load(top, *row)))

    stages = (
        *before,
        product(
            scores,
            ((heads, queries, size), element(q, "float32")),
            ((heads, size, keys), element(turn if transposed else k, "float32")),
            "float32",
        ),
        b.compute(masked, lambda i: b.add(b.load(scores, *i), b.load(mask, i[1], i[2]))),
        b.reduce(top, "max", [keys], lambda i, r: b.load(masked, *i, *r)),
        b.reduce(total, "add", [keys], lambda i, r: power(list(i), r[0])),
        b.compute(weights, lambda i: b.divide(power(list(i[:2]), i[2]), b.load(total, *i[:2]))),
        product(
            out,
            ((heads, queries, keys), element(weights, "float32")),
            ((heads, keys, features), element(v, "float32")),
            "float32",
        ),
    )
    return Kernel("kernel", (q, k, v, mask), (out,), stages, Trait.ATTENTION)


def check(kernel: Kernel, target: Target) -> None:
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(b.dims(item)).astype(np.float32) for item in kernel.inputs]
    scheduled = schedule_attention(kernel, target)
    assert scheduled is not None
    verify(scheduled.function)
    (result,) = run_function(scheduled.function, arrays)
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))[kernel.outputs[0]]
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-6)


extents = st.integers(2, 20)


@settings(max_examples=6, deadline=None)
@given(queries=extents, keys=extents, size=extents, features=extents, transposed=st.booleans())
@pytest.mark.parametrize("target", [WIDE, MIDDLE, NARROW], ids=["wide", "middle", "narrow"])
def test_attention_of_any_shape_is_computed(
    queries: int, keys: int, size: int, features: int, transposed: bool, target: Target
) -> None:
    check(attention_kernel(2, queries, keys, size, features, transposed), target)


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(numpy_dtype("bfloat16")).astype(np.float32)


def check_bfloat16(kernel: Kernel, target: Target, blocks: int = 1) -> None:
    """Against NumPy with rounded factors: queries, keys, exponentials before they are divided, values.

    Of several blocks exponentials are rounded before it is known what the largest score is.
    """
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(b.dims(item)).astype(np.float32) for item in kernel.inputs]
    q, k, v, mask = arrays
    transposed = len(kernel.stages) == 7
    scores = rounded(q) @ rounded(k.swapaxes(1, 2) if transposed else k) + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = rounded(powers) @ rounded(v) / powers.sum(-1, keepdims=True)
    scheduled = schedule_attention(kernel, replace(target, precision="bf16"))
    assert scheduled is not None and "dot2_bf16" in str(scheduled.function)
    verify(scheduled.function)
    (result,) = run_function(scheduled.function, arrays)
    either = np.abs(rounded(powers * 1.000002) - rounded(powers / 1.000002))  # what lies between two of bfloat16
    doubt = either @ np.abs(rounded(v)) / powers.sum(-1, keepdims=True)
    if blocks > 1:
        doubt = 2.0**-8 * powers @ np.abs(rounded(v)) / powers.sum(-1, keepdims=True)
    assert np.all(np.abs(result - expected) <= 1e-3 + doubt)


@settings(max_examples=6, deadline=None)
@given(queries=extents, keys=extents, size=extents, features=extents, transposed=st.booleans())
@pytest.mark.parametrize("target", [WIDE, MIDDLE], ids=["wide", "middle"])
def test_attention_in_bfloat16_rounds_its_factors(
    queries: int, keys: int, size: int, features: int, transposed: bool, target: Target
) -> None:
    check_bfloat16(attention_kernel(2, queries, keys, size, features, transposed), target)


def test_keys_are_transposed_in_registers() -> None:
    check(attention_kernel(1, 5, 37, 16, 5, transposed=True), WIDE)
    check_bfloat16(attention_kernel(1, 5, 19, 32, 5, transposed=True), WIDE)


@pytest.mark.parametrize("most", ["MOST_KEYS", "MOST_QUERIES"])
@pytest.mark.parametrize("size", [1, 9, 17])
def test_blocks_of_any_size_give_the_same_result(most: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention, most, size)
    check(attention_kernel(1, 23, 35, 4, 4), MIDDLE)
    check_bfloat16(attention_kernel(1, 23, 35, 4, 4), MIDDLE, blocks=2)


def test_a_kernel_of_other_stages_is_left_to_others() -> None:
    kernel = attention_kernel(1, 3, 4, 5, 6)
    cut = Kernel("cut", kernel.inputs, (kernel.stages[-2].buffer,), kernel.stages[:-1], Trait.ATTENTION)
    assert schedule_attention(cut, WIDE) is None
