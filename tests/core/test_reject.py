"""Refusals as data, and how several checks become one."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.reject import BACKEND_CODES, CORE_CODES, LOST_TO, Reject, Yield, first, plain
from graft.errors import GraftError


def test_the_first_refusal_is_found_though_refusals_are_falsy() -> None:
    rank, size = Reject("rank", "too many axes"), Reject("size", "too large")
    assert first(None, rank, size) == rank
    assert first(None, None) is None


@pytest.mark.parametrize("code", [*BACKEND_CODES, *CORE_CODES, f"{LOST_TO}llvm"])
def test_a_refusal_is_false_and_shows_its_code_and_text(code: str) -> None:
    assert not Reject(code, "why")
    assert (str(Reject(code, "why")), str(Reject(code))) == (f"{code}: why", code)


def test_an_unknown_code_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(GraftError) as caught:
        Reject("odd", "why")
    known = ", ".join((*BACKEND_CODES, *CORE_CODES, "lost-to:<backend>"))
    assert str(caught.value) == f"unknown reason code 'odd'; use one of {known}"


@pytest.mark.parametrize(("code", "text", "wrong"), [(3, "why", "code"), ("rank", 3, "text"), (3, 3, "code")])
def test_code_and_text_are_strings(code: object, text: object, wrong: str) -> None:
    with pytest.raises(GraftError, match=f"^Reject: {wrong} is int 3; give a text$"):
        Reject(code, text)  # type: ignore[arg-type]


def test_support_inside_regions_has_a_reason_and_is_not_refused_everywhere() -> None:
    assert Yield("a copy") == Yield("a copy", everywhere=False)
    with pytest.raises(GraftError, match=r"^Yield: text is int 3; give a text$"):
        Yield(3)  # type: ignore[arg-type]


def test_a_boolean_of_numpy_is_pythons_and_all_else_stays() -> None:
    assert plain(np.bool_(True)) is True and plain(np.bool_(False)) is False
    number, refusal = np.int64(0), Reject("rank")
    assert plain(number) is number and plain(refusal) is refusal and plain(True) is True
    assert plain(Named()).__class__ is Named


Named = type("bool", (), {"__bool__": lambda self: True})
