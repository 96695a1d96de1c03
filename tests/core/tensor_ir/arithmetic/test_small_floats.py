"""16-bit floats on bits and in float32 give the bits of NumPy's own types, for every number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graft.core.tensor_ir.arithmetic.small_floats import bits_of, in_float32, widening
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Binary, Buffer, Cast, Constant, Expression, Load, Stage, Variable
from graft.core.tensor_ir.visit import walk_expressions
from graft.core.types import INT64
from graft.runtime.dtypes import numpy_dtype

SMALL = ("float16", "bfloat16")


def evaluate(dtype: str, rule: Callable[[Expression], Expression], *arguments: tuple[str, np.ndarray]) -> np.ndarray:
    """``rule`` of the arguments, element by element, widened; no cast from or to a 16-bit float is left."""
    extent = (Constant(arguments[0][1].size, INT64),)
    buffers = [Buffer(f"x{number}", kind, extent) for number, (kind, _) in enumerate(arguments)]
    i = Variable("i")
    value = widening()(rule(*(Load(buffer, (i,)) for buffer in buffers)))
    casts = [one for one in walk_expressions(value) if isinstance(one, Cast)]
    assert not {kind for one in casts for kind in (one.dtype, one.value.type.dtype)} & set(SMALL)
    stage = Stage(Buffer("y", dtype, extent), (i,), value)
    return run_stages([stage], {buffer: array for buffer, (_, array) in zip(buffers, arguments, strict=True)})[
        stage.buffer
    ]


def every(dtype: str) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(dtype))


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    numbers = ~np.isnan(theirs)
    kind = f"uint{8 * ours.itemsize}"
    np.testing.assert_array_equal(ours[numbers].view(kind), theirs[numbers].view(kind))


@pytest.mark.parametrize("dtype", SMALL)
def test_every_number_widens_exactly(dtype: str) -> None:
    found = evaluate("float32", lambda x: Cast(x, "float32"), (dtype, every(dtype)))
    assert_same(found, every(dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("nudge", [-1, 0, 1])
def test_the_middle_of_two_numbers_rounds_to_even_and_its_neighbours_to_the_nearer(dtype: str, nudge: int) -> None:
    with np.errstate(all="ignore"):
        wide = every(dtype).astype(np.float64)
        finite = np.unique(wide[np.isfinite(wide)])
        middle = (finite[1:] + finite[:-1]) / 2
        given = middle if nudge == 0 else np.nextafter(middle, nudge * np.inf)
        step = np.searchsorted(finite, given)
        even = np.where(
            finite.astype(numpy_dtype(dtype)).view(np.uint16)[step] % 2 == 0, finite[step], finite[step - 1]
        )
        nearest = even if nudge == 0 else np.where(nudge > 0, finite[step], finite[step - 1])
    found = evaluate(dtype, lambda x: Cast(x, dtype), ("float64", given)).astype(np.float64)
    np.testing.assert_array_equal(found, nearest)


def test_a_64_bit_integer_is_rounded_once() -> None:
    """Rounded to float64 first, the 1 beyond the middle of two bfloat16 would be lost."""
    middle = 2**62 + 2**54
    given = np.array([middle, middle + 1, -middle - 1, 5, -7, 2**63 - 1], np.int64)
    found = evaluate("bfloat16", lambda x: Cast(x, "bfloat16"), ("int64", given)).astype(np.float64)
    np.testing.assert_array_equal(found, [2.0**62, middle + 2.0**54, -middle - 2.0**54, 5, -7, 2.0**63])


@pytest.mark.parametrize("dtype", SMALL)
def test_a_sum_is_rounded_once(dtype: str) -> None:
    random = np.random.default_rng(0)
    left, right = (random.permutation(every(dtype)) for _ in range(2))
    with np.errstate(all="ignore"):
        expected = (left.astype(np.float32) + right.astype(np.float32)).astype(left.dtype)
    found = evaluate(dtype, lambda x, y: Binary("add", x, y), (dtype, left), (dtype, right))
    assert_same(found, expected)


def test_a_cast_that_is_an_instruction_stays() -> None:
    x = Variable("x", Cast(Constant(0.0, INT64), "float32").type)
    narrow = Cast(x, "float16")
    assert in_float32(narrow, ("round_f16",)) is narrow
    assert in_float32(narrow) is not narrow
    assert in_float32(Cast(x, "bfloat16"), ("round_f16", "round_bf16")) is not narrow


@pytest.mark.parametrize(("dtype", "number", "bits"), [
    ("float16", 1.0, 0x3C00), ("float16", 70000.0, 0x7C00), ("float16", -0.0, 0x8000),
    ("bfloat16", 1.0, 0x3F80), ("bfloat16", float("-inf"), 0xFF80), ("bfloat16", 1e39, 0x7F80),
])  # fmt: skip
def test_the_bits_of_a_constant(dtype: str, number: float, bits: int) -> None:
    assert bits_of(number, dtype) == bits
