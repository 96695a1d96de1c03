"""The datatypes that come with Graft, and small floats in one line."""

from __future__ import annotations

import numpy as np
import pytest

from graft.datatypes.shipped import DATATYPES, register_fixed, register_float
from graft.errors import GraftError


def message(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value.message


@pytest.mark.parametrize(("exponent", "mantissa"), [(11, 20), (-1, 2), (0, 2), (4, 0)])
def test_a_small_float_has_widths_that_float32_carries(exponent: int, mantissa: int) -> None:
    assert message(register_float, "odd", exponent, mantissa) == (
        f"a float has 2 to 8 exponent bits and 1 to 10 mantissa bits; 'odd' has {exponent} and {mantissa}"
    )


def test_the_shipped_datatypes_are_registered() -> None:
    assert {row.name for row in DATATYPES} >= {
        "posit", "posit_es0", "posit_es1", "float", "bfloat", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz",
        "float8e5m2fnuz", "float6e2m3", "float6e3m2", "float4e2m1", "float8e8m0", "fixed", "lns",
    }  # fmt: skip


def test_a_small_float_is_registered_in_one_line() -> None:
    register_float("fp6e3m2", 3, 2, infinities=False, saturate=True)
    format = DATATYPES.format("custom[fp6e3m2]6")
    assert format is not None
    assert format.largest == 14.0  # the top exponent is NaN's


def numbers_of(dtype: str, codes: int) -> list[float]:
    format = DATATYPES.format(dtype)
    assert format is not None
    return format.to_numbers(np.arange(codes).astype(format.storage)).tolist()


def test_every_code_of_a_finite_float_is_a_number_of_the_specification() -> None:
    half = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]  # OCP MX 1.0, E2M1
    assert numbers_of("custom[float4e2m1]4", 16) == [*half, *(-one for one in half)]
    eighths = [*range(16), *range(16, 32, 2), *range(32, 64, 4)]  # E2M3
    assert [8 * one for one in numbers_of("custom[float6e2m3]6", 32)] == eighths
    sixteenths = [*range(8), *(one << shift for shift in range(1, 7) for one in range(4, 8))]  # E3M2
    assert [16 * one for one in numbers_of("custom[float6e3m2]6", 32)] == sixteenths


def test_a_float_has_the_bias_and_the_places_of_nan_and_infinity_that_are_given() -> None:
    register_float("binary8p3se", 5, 2, bias=16, nan="zero", infinities=True)  # of IEEE's draft P3109
    numbers = numbers_of("custom[binary8p3se]8", 256)
    assert (numbers[126], numbers[127], numbers[255], numbers[1]) == (49152.0, np.inf, -np.inf, 2.0**-17)
    assert np.flatnonzero(np.isnan(numbers)).tolist() == [128]
    register_float("wide4", 2, 1, nan="none", bias=-1)
    assert numbers_of("custom[wide4]4", 8) == [0.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"nan": "none", "infinities": True},
         "with nan='none' there is no code for infinity; 'odd' has infinities with nan='ieee' or 'zero'"),
        ({"nan": "lost"}, "register_float: nan is str 'lost'; give one of ieee, top, zero, none"),
        ({"bias": 200}, "the bias of 'odd' may be 7, or from -111 to 123, not 200"),
    ],
)  # fmt: skip
def test_a_float_that_cannot_be_is_refused(options: dict[str, object], expected: str) -> None:
    assert message(register_float, "odd", 4, 3, **options) == expected


def test_fixed_point_is_registered_in_one_line() -> None:
    register_fixed("eighths", 6, 3, symmetric=True)
    format = DATATYPES.format("custom[eighths]6")
    assert format is not None and (format.lowest, format.largest, format.unit) == (-31 / 8, 31 / 8, 1 / 8)
    assert format.to_numbers(format.to_bits(np.array([-9.0, 0.1, np.nan]))).tolist() == [-31 / 8, 1 / 8, 0.0]
    assert message(register_fixed, "huge", 33, 3) == (
        "fixed point has 2 to 32 bits, -64 to 64 of them behind the point; 'huge' has 33 and 3"
    )
