"""Integers of 32 and 64 bits become numbers of every bundled format with one rounding, against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
from onnx import TensorProto, helper

import graft
from graft.datatypes.arrays import encode
from graft.datatypes.conversion import convert
from tests.datatypes.proofs.oracle import posit_code
from tests.datatypes.proofs.running import format_of

SOURCES = {
    "int32": (TensorProto.INT32, 31),
    "uint32": (TensorProto.UINT32, 32),
    "int64": (TensorProto.INT64, 63),
    "uint64": (TensorProto.UINT64, 64),
}
"""By element type: ONNX's number, and the bits of a magnitude."""

# ---- The nearest number, by integers alone ----


def nearest_multiple(size: int, excess: int) -> int:
    """Return the multiple of ``2**excess`` nearest to a size, ties to the even one."""
    whole, rest = size >> excess, size & ((1 << excess) - 1)
    half = (1 << excess) >> 1
    return (whole + int(excess > 0 and (rest > half or (rest == half and whole & 1 == 1)))) << excess


def as_float(number: int, significant: int, largest: int | None, beyond: float) -> float:
    """A float of so many significant bits; what rounds to more than ``largest`` is ``beyond``."""
    size = nearest_multiple(abs(number), max(abs(number).bit_length() - significant, 0))
    found = beyond if largest is not None and size > largest else float(size)
    return -found if number < 0 else found


def as_posit(number: int, bits: int, es: int) -> float:
    code = posit_code(Fraction(number), bits, es)
    return float(format_of(POSITS[bits, es]).to_numbers(np.array([code], f"uint{bits}"))[0])


def as_fixed(number: int, bits: int, fraction: int) -> float:
    half = 1 << (bits - 1)
    return max(-half, min(half - 1, number << fraction)) / 2.0**fraction


POSITS = {
    (8, 2): "custom[posit]8", (16, 2): "custom[posit]16", (32, 2): "custom[posit]32",
    (8, 0): "custom[posit_es0]8", (16, 1): "custom[posit_es1]16",
}  # fmt: skip
INFINITE = float("inf")
FORMATS: dict[str, Callable[[int], float]] = {
    "custom[float]8": lambda number: as_float(number, 4, 240, INFINITE),
    "custom[float]16": lambda number: as_float(number, 11, 65504, INFINITE),
    "custom[bfloat]16": lambda number: as_float(number, 8, None, INFINITE),
    "custom[float8e4m3fn]8": lambda number: as_float(number, 4, 448, 448.0),
    "custom[float8e4m3fnuz]8": lambda number: as_float(number, 4, 240, 240.0),
    "custom[float8e5m2]8": lambda number: as_float(number, 3, 57344, 57344.0),
    "custom[float8e5m2fnuz]8": lambda number: as_float(number, 3, 57344, 57344.0),
    "custom[fixed]8": lambda number: as_fixed(number, 8, 4),
    "custom[fixed]16": lambda number: as_fixed(number, 16, 8),
    "custom[fixed]32": lambda number: as_fixed(number, 32, 16),
    **{name: partial(as_posit, bits=bits, es=es) for (bits, es), name in POSITS.items()},
}
LOGARITHMIC = {"custom[lns]8": (8, 3), "custom[lns]16": (16, 10)}

# ---- Numbers to convert ----


@cache
def hard_integers(source: str) -> np.ndarray:
    """Return integers halfway between two of up to 30 significant bits, those beside them, random ones and extremes."""
    random, bits = np.random.default_rng(7), SOURCES[source][1]
    found = {0, 1, 2, 3, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1)}
    for length in range(2, bits + 1):
        found.add(int(random.integers(1 << (length - 1), (1 << length) - 1, dtype=np.uint64, endpoint=True)))
        for significant in (1, 2, 3, 4, 5, 8, 11, 12, 19, 24, 27, 28):
            if significant < length:
                top = int(random.integers(1 << (significant - 1), 1 << significant))
                tie = (2 * top + 1) << (length - significant - 1)
                found.update((tie - 1, tie, tie + 1))
    found = {number for number in found if number < 1 << bits}
    if not source.startswith("u"):
        found |= {-number for number in found} | {-(1 << bits)}
    return np.array(sorted(found), source)


def converted(dtype: str) -> dict[str, np.ndarray]:
    """Return all hard integers by source, cast to a custom type by a compiled program, as float64."""
    given, results, nodes = [], [], []
    for source, (kind, _) in SOURCES.items():
        size = hard_integers(source).size
        given.append(helper.make_tensor_value_info(f"from_{source}", kind, [size]))
        results.append(helper.make_tensor_value_info(source, TensorProto.DOUBLE, [size]))
        nodes.append(helper.make_node("Cast", [f"from_{source}"], [f"cast_{source}"], to=TensorProto.DOUBLE))
        nodes.append(helper.make_node("Identity", [f"cast_{source}"], [source]))
    graph = helper.make_graph(nodes, "cast", given, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    program = graft.compile(convert(model, dtype), ["llvm"], threads=1)
    return program.run({f"from_{source}": hard_integers(source) for source in SOURCES})


def wrong(numbers: np.ndarray, actual: np.ndarray, expected: np.ndarray) -> list[tuple[int, float, float]]:
    places = np.flatnonzero(actual != expected)[:5]
    return [(int(numbers[place]), float(actual[place]), float(expected[place])) for place in places]


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(one, marks=[pytest.mark.slow] * ("posit" in one and one != "custom[posit]16")) for one in FORMATS],
)
def test_integers_become_the_nearest_number_of_a_format(dtype: str) -> None:
    actual = converted(dtype)
    for source in SOURCES:
        numbers = hard_integers(source)
        expected = np.array([FORMATS[dtype](int(number)) for number in numbers])
        assert not wrong(numbers, actual[source], expected), source
        assert not wrong(numbers, format_of(dtype).to_numbers(encode(numbers, dtype)), expected), source


@pytest.mark.parametrize("cpu", ["native", "x86-64"])
def test_integers_become_the_nearest_float16_of_onnx(cpu: str) -> None:
    kinds = [(source, kind, [hard_integers(source).size]) for source, (kind, _) in SOURCES.items()]
    given = [helper.make_tensor_value_info(f"from_{source}", kind, shape) for source, kind, shape in kinds]
    results = [helper.make_tensor_value_info(source, TensorProto.FLOAT16, shape) for source, _, shape in kinds]
    nodes = [helper.make_node("Cast", [f"from_{name}"], [name], to=TensorProto.FLOAT16) for name in SOURCES]
    graph = helper.make_graph(nodes, "cast", given, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    program = graft.compile(model, ["llvm"], strict=True, threads=1, cpu=cpu)
    actual = program.run({f"from_{source}": hard_integers(source) for source in SOURCES})
    for source in SOURCES:
        numbers = hard_integers(source)
        expected = np.array([as_float(int(number), 11, 65504, INFINITE) for number in numbers])
        assert not wrong(numbers, np.asarray(actual[source]).astype(np.float64), expected), source


@pytest.mark.parametrize("dtype", LOGARITHMIC)
def test_integers_become_the_nearest_logarithm(dtype: str) -> None:
    """By integer powers: between ``2**((2 i - 1) / 2**(f + 1))`` and ``2**((2 i + 1) / 2**(f + 1))`` is code i."""
    bits, fraction = LOGARITHMIC[dtype]
    format, top = format_of(dtype), (1 << (bits - 2)) - 1
    actual = converted(dtype)
    for source in SOURCES:
        numbers = hard_integers(source)
        codes = encode(numbers, dtype)
        for number, code in list(zip(numbers.tolist(), codes.tolist(), strict=True))[::7]:
            if number == 0:
                assert code == 1 << (bits - 2)
                continue
            logarithm = code & ((1 << (bits - 1)) - 1)
            assert code >> (bits - 1) == (number < 0) and logarithm <= top, number
            power = abs(number) ** (2 << fraction)
            assert logarithm == 0 or power > 1 << (2 * logarithm - 1), number
            assert logarithm == top or power < 1 << (2 * logarithm + 1), number
        # The functions of the code and of NumPy differ in the last bit of what a code stands for.
        np.testing.assert_allclose(actual[source], format.to_numbers(codes), rtol=1e-13)
