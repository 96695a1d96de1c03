"""What scaled types there are and what they are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graft.datatypes.registry import DATATYPES
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType, scaled_type
from graft.errors import GraftError
from tests.datatypes.scaled.block_oracle import ELEMENTS


def test_the_elements_are_those_of_the_specification() -> None:
    for name, element in ELEMENTS.items():
        format = SCALED_TYPES[name].element_format
        assert (format.largest, format.top_exponent, format.bits) == (
            float(element.largest), element.emax, (len(element.values) - 1).bit_length()
        ), name  # fmt: skip


@pytest.mark.parametrize(("name", "bits"), [("mxfp4", 4.25), ("nvfp4", 4.5), ("mxfp6e2m3", 6.25), ("msfp12", 4.5)])
def test_the_bits_of_a_number_count_its_share_of_the_scale(name: str, bits: float) -> None:
    assert scaled_type(name).bits == bits


def test_a_name_may_say_the_rule_of_scales() -> None:
    assert scaled_type("mxfp8e4m3-floor") == replace(SCALED_TYPES["mxfp8e4m3"], rule="floor")
    assert (scaled_type("mxfp8e4m3").rule, scaled_type("mxfp4").rule) == ("rceil", "floor")
    with pytest.raises(GraftError, match="a scale's rule is one of floor, even, ceil, rceil, nearest, not 'cel'"):
        scaled_type("mxfp4-cel")


def test_a_scale_of_a_whole_axis_takes_no_bits() -> None:
    assert ScaledType("custom[posit]8", block=None).bits == 8


def wrong(*arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        ScaledType(*arguments, **options)  # type: ignore[arg-type]
    return caught.value.message


def test_what_is_no_scaled_type_is_refused() -> None:
    assert wrong("custom[posit]8", block=0) == "a block has at least one number, not 0"
    assert wrong("custom[posit]8", rule="up") == "a scale's rule is one of floor, even, ceil, rceil, nearest, not 'up'"
    assert wrong("custom[posits]8").startswith("datatype 'posits' is not registered; did you mean 'posit'")
    with pytest.raises(GraftError) as caught:
        scaled_type("mxfp5")
    assert caught.value.message == "no scaled type is called 'mxfp5'; did you mean 'mxfp4'"


def test_a_type_of_lowerings_alone_is_no_element() -> None:
    if "unscaled" not in DATATYPES:
        DATATYPES.register("unscaled", widths=(16,))
    assert wrong("custom[unscaled]16") == "custom[unscaled]16 has only lowerings; a scaled type is made of formats"
