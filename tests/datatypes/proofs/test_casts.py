"""Casts of every bundled format of up to 16 bits, every code, against exact rationals and ml_dtypes."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from graft.datatypes.formats import Format, evaluate
from graft.datatypes.power_of_two import PowerOfTwo
from graft.datatypes.small_float import SmallFloat
from tests.datatypes.proofs.oracle import FloatText, Numbers, float_numbers, numbers_of, posit_numbers, same
from tests.datatypes.proofs.running import all_codes, format_of

TEXTS = {
    "custom[float]8": (FloatText(4, 3), False),
    "custom[float]16": (FloatText(5, 10), False),
    "custom[bfloat]16": (FloatText(8, 7), False),
    "custom[float8e4m3fn]8": (FloatText(4, 3, infinities=False, nan="top"), True),
    "custom[float8e5m2]8": (FloatText(5, 2), True),
    "custom[float8e4m3fnuz]8": (FloatText(4, 3, infinities=False, nan="zero", bias=8), True),
    "custom[float8e5m2fnuz]8": (FloatText(5, 2, infinities=False, nan="zero", bias=16), True),
    "custom[float6e2m3]6": (FloatText(2, 3, infinities=False, nan="none"), True),
    "custom[float6e3m2]6": (FloatText(3, 2, infinities=False, nan="none"), True),
    "custom[float4e2m1]4": (FloatText(2, 1, infinities=False, nan="none"), True),
}
POSITS = {"custom[posit]8": 2, "custom[posit]16": 2, "custom[posit_es0]8": 0, "custom[posit_es1]16": 1}
FIXED = {"custom[fixed]8": 4, "custom[fixed]16": 8}
EVERY = [*TEXTS, *POSITS, *FIXED]


@cache
def oracle(dtype: str) -> Numbers:
    bits = format_of(dtype).bits
    if dtype in POSITS:
        return posit_numbers(bits, POSITS[dtype])
    if dtype in FIXED:
        return fixed_numbers(bits, FIXED[dtype])
    text, saturate = TEXTS[dtype]
    return float_numbers(text, saturate)


def fixed_numbers(bits: int, fraction: int) -> Numbers:
    from fractions import Fraction

    half = 1 << (bits - 1)
    return numbers_of({code: Fraction(code, 1 << fraction) for code in range(-half, half)})


def rounded(dtype: str, numbers: np.ndarray) -> np.ndarray:
    """Numbers rounded by the oracle; fixed point has neither NaN nor infinities."""
    if dtype not in FIXED:
        return oracle(dtype).round(numbers)
    finite = np.nan_to_num(numbers, nan=0.0, posinf=1e30, neginf=-1e30)
    return oracle(dtype).round(finite)


def cast(source: Format, target: Format, codes: np.ndarray) -> np.ndarray:
    bits = evaluate(lambda value: target.encode(target.convert(source.decode(value))), codes)
    return target.to_numbers(bits)


@pytest.mark.parametrize("dtype", EVERY)
def test_every_code_stands_for_the_number_of_the_text(dtype):
    format = format_of(dtype)
    codes = all_codes(format)
    numbers = format.to_numbers(codes)
    if dtype in TEXTS:
        expected = np.array([float(TEXTS[dtype][0].value(code)) for code in range(1 << format.bits)])
        assert same(numbers, expected).all()
        zeros = codes[numbers == 0]
        assert zeros.size == (1 if "fnuz" in dtype else 2)
    elif dtype in FIXED:
        assert np.array_equal(numbers, codes.view(f"int{format.bits}") / 2.0 ** FIXED[dtype])
    else:
        assert same(np.sort(numbers), np.sort(np.append(oracle(dtype).values, np.nan))).all()
    back = format.to_bits(numbers)
    valid = ~np.isnan(numbers)
    assert np.array_equal(back[valid], codes[valid])
    assert np.isnan(format.to_numbers(back[~valid])).all()


@pytest.mark.parametrize("source", EVERY)
@pytest.mark.parametrize("target", EVERY)
def test_every_code_casts_to_every_format_rounded_once(source, target):
    codes = all_codes(format_of(source))
    numbers = format_of(source).to_numbers(codes)
    assert same(cast(format_of(source), format_of(target), codes), rounded(target, numbers)).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", EVERY)
def test_numbers_midpoints_and_their_neighbours_round_to_the_nearest(dtype, kind):
    table = oracle(dtype)
    largest = np.max(table.values[np.isfinite(table.values)])
    beyond = largest * np.array([1, 1.01, 1.1, 1.5, 2, 1e6, -1, -1.01, -1.1, -1.5, -2, -1e6])
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, -1e-300])
    with np.errstate(over="ignore"):
        points = np.concatenate([table.values, table.middles, beyond, special]).astype(kind)
    for given in (points, np.nextafter(points, kind(np.inf)), np.nextafter(points, kind(-np.inf))):
        actual = format_of(dtype).to_numbers(format_of(dtype).to_bits(given))
        assert same(actual, rounded(dtype, given.astype(np.float64))).all()


UNSATURATED = {
    "float16": SmallFloat(16, 10),
    "bfloat16": SmallFloat(16, 7),
    "float8_e4m3": SmallFloat(8, 3),
    "float8_e4m3fn": SmallFloat(8, 3, infinities=False, nan="top"),
    "float8_e5m2": SmallFloat(8, 2),
    "float8_e4m3fnuz": SmallFloat(8, 3, infinities=False, nan="zero", extra_bias=1),
    "float8_e5m2fnuz": SmallFloat(8, 2, infinities=False, nan="zero", extra_bias=1),
    "float8_e3m4": SmallFloat(8, 4),
    "float8_e4m3b11fnuz": SmallFloat(8, 3, infinities=False, nan="zero", extra_bias=4),
    "float6_e2m3fn": SmallFloat(6, 3, infinities=False, nan="none"),
    "float6_e3m2fn": SmallFloat(6, 2, infinities=False, nan="none"),
    "float4_e2m1fn": SmallFloat(4, 1, infinities=False, nan="none"),
    "float8_e8m0fnu": PowerOfTwo(8),
}


def theirs(name: str) -> np.dtype:
    return np.dtype(np.float16) if name == "float16" else np.dtype(getattr(ml_dtypes, name))


def comparable(name: str, numbers: np.ndarray) -> np.ndarray:
    """Numbers without those of which ml_dtypes (0.6) has another opinion.

    A NaN with a sign is +0 there where a format has no NaN. Between 2**-127 and 2**-126, subnormal in float32, E8M0 is
    rounded up there, not to the nearest.
    """
    if name == "float8_e8m0fnu":
        return numbers[~((numbers > 2.0**-127) & (numbers < 2.0**-126))]
    return numbers[~(np.isnan(numbers) & np.signbit(numbers))]


@pytest.mark.parametrize("name", UNSATURATED)
def test_every_code_is_the_number_of_ml_dtypes(name):
    format, other = UNSATURATED[name], theirs(name)
    codes = all_codes(format)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = codes.view(other).astype(np.float64)
    actual = format.to_numbers(codes)
    assert same(actual, expected).all()
    valid = ~np.isnan(expected)
    assert np.array_equal(np.signbit(actual[valid]), np.signbit(expected[valid]))


@pytest.mark.parametrize("name", UNSATURATED)
def test_every_float16_and_bfloat16_casts_as_in_ml_dtypes(name):
    format, other = UNSATURATED[name], theirs(name)
    codes = np.arange(1 << 16, dtype=np.uint16)
    for source in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        given = comparable(name, codes.view(source).astype(np.float32))
        with np.errstate(over="ignore", invalid="ignore"):
            expected = given.astype(other).view(format.storage)
        actual = format.to_bits(given)
        differs = actual != expected
        assert np.isnan(format.to_numbers(actual[differs])).all()
        assert np.isnan(format.to_numbers(expected[differs])).all()


def test_random_float32_of_every_exponent_casts_as_in_ml_dtypes():
    given = np.random.default_rng(1).integers(0, 1 << 32, 500_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for name, format in UNSATURATED.items():
        kept = comparable(name, given[~np.isnan(given)])
        with np.errstate(over="ignore", invalid="ignore"):
            expected = kept.astype(theirs(name)).view(format.storage)
        actual = format.to_bits(kept)
        nan = np.isnan(format.to_numbers(expected))
        assert np.array_equal(actual[~nan], expected[~nan]), name
        assert np.isnan(format.to_numbers(actual[nan])).all(), name


@pytest.mark.parametrize("whole", [np.int8, np.uint8, np.int16, np.uint16])
def test_integers_cast_through_compiled_code_and_back(whole):
    from onnx import TensorProto, helper
    from onnx.helper import np_dtype_to_tensor_dtype

    import graft
    from graft.datatypes.conversion import convert

    info = np.iinfo(whole)
    given = np.arange(info.min, int(info.max) + 1).astype(whole)
    kind = np_dtype_to_tensor_dtype(np.dtype(whole))
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "casts", [helper.make_tensor_value_info("x", kind, given.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, given.shape)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    program = graft.compile(convert(model, "custom[posit]16"), ["llvm"], threads=1)
    assert np.array_equal(program(given), -oracle("custom[posit]16").round(given.astype(np.float64)))
