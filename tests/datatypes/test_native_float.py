"""The machine's own floats as number formats."""

from __future__ import annotations

import numpy as np
import pytest

from graft.datatypes.compute_type import decoded
from graft.datatypes.formats import evaluate
from graft.datatypes.native_float import FUSED, ORDERED, NativeFloat, as_carrier, is_fused
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.small_float import SmallFloat


@pytest.mark.parametrize("bits", [32, 64])
def test_its_facts_are_those_of_the_machines_type(bits: int) -> None:
    format, kind = NativeFloat(bits), np.finfo(f"float{bits}")
    assert (format.carrier, format.storage) == (f"float{bits}", f"uint{bits}")
    assert (format.largest, format.lowest, format.smallest) == (kind.max, kind.min, kind.smallest_subnormal)
    assert format.significant == {32: 24, 64: 53}[bits]
    assert format.has_infinity_value
    assert not format.has_quire


@pytest.mark.parametrize("bits", [32, 64])
def test_bits_and_numbers_are_the_machines(bits: int) -> None:
    format = NativeFloat(bits)
    numbers = np.array([0.0, -0.0, 1.1, -3e-40, np.inf, -np.inf], f"float{bits}")
    np.testing.assert_array_equal(format.to_bits(numbers), numbers.view(f"uint{bits}"))
    np.testing.assert_array_equal(format.to_numbers(numbers.view(f"uint{bits}")), numbers.astype(np.float64))


def test_operations_are_the_machines_rounded_once() -> None:
    format = NativeFloat(32)
    x = np.array([1.1, 3.0, 1e38], np.float32)
    y = np.array([7.7, -0.3, 1e38], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(evaluate(format.multiply, x, y), x * y)
        np.testing.assert_array_equal(evaluate(format.add, x, y), x + y)
    np.testing.assert_array_equal(evaluate(format.root, x), np.sqrt(x))
    assert not format.needs_odd


def test_a_multiply_add_is_fused() -> None:
    x = np.array([1 + 2.0**-12], np.float32)
    exact = (1 + 2.0**-12) ** 2 - 1
    minus_one = np.array([-1], np.float32)
    assert evaluate(NativeFloat(32).multiply_add, x, x, minus_one).tolist() == [np.float32(exact)]
    assert (x * x + minus_one)[0] != np.float32(exact)


def test_numbers_of_the_other_width_are_converted() -> None:
    assert evaluate(NativeFloat(32).convert, np.array([0.1])).tolist() == [np.float32(0.1)]
    assert evaluate(NativeFloat(64).convert, np.array([0.1], np.float32)).tolist() == [float(np.float32(0.1))]
    assert evaluate(NativeFloat(64).convert, np.array([0.1])).tolist() == [0.1]


def test_only_a_fused_native_float_is_fused() -> None:
    assert is_fused(NativeFloat(32, is_fused=True))
    assert not is_fused(NativeFloat(32))
    assert not is_fused(SmallFloat(8, 3))
    assert not is_fused(None)


def test_every_ordered_type_has_a_format_and_the_fused_one_is_the_same_float() -> None:
    for name, custom in ORDERED.items():
        assert DATATYPES.format(custom) is not None, name
    for custom, fused in FUSED.items():
        ordered, other = DATATYPES.format(custom), DATATYPES.format(fused)
        assert isinstance(ordered, NativeFloat)
        assert isinstance(other, NativeFloat)
        assert (ordered.bits, ordered.is_fused, other.bits, other.is_fused) == (ordered.bits, False, ordered.bits, True)


def test_decoded_native_floats_are_carriers_and_others_stay() -> None:
    for custom, plain in (("custom[float]32", "float32"), ("custom[fused_float]64", "float64")):
        format = DATATYPES.format(custom)
        assert format is not None
        assert as_carrier(decoded(custom, format)) == plain
    half = DATATYPES.format("custom[float]16")
    assert half is not None
    kind = decoded("custom[float]16", half)
    assert as_carrier(kind) == kind
    assert as_carrier("int8") == "int8"
