"""The datatypes that come with Graft, and small floats in one line."""

from __future__ import annotations

import pytest

from graft.datatypes.shipped import DATATYPES, register_float
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
        "float8e5m2fnuz", "fixed", "lns",
    }  # fmt: skip


def test_a_small_float_is_registered_in_one_line() -> None:
    register_float("fp6e3m2", 3, 2, infinities=False, saturate=True)
    format = DATATYPES.format("custom[fp6e3m2]6")
    assert format is not None
    assert format.largest == 14.0  # the top exponent is NaN's
