"""Arguments of public functions are of the kind that each takes, or refused with what to give."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.errors import ArgumentError
from graft.runtime import arguments as a
from graft.runtime._native import CancelToken

HUGE = 2**31


@pytest.mark.parametrize(
    ("kind", "fits", "refused"),
    [
        (a.FLAG, [True, False, np.True_], [0, 1, "yes", None]),
        (a.WHOLE, [0, -5, np.int64(3), HUGE - 1, 1 - HUGE], [True, 1.0, HUGE, -HUGE, "1"]),
        (a.NUMBER, [1, 1.5, np.float32(2)], [True, "1", float("nan"), float("inf"), None]),
        (a.DURATION, [0, 0.5, 86400], [-0.1, 86401, True]),
        (a.TEXT, ["", "a"], [b"a", 1]),
        (a.TEXTS, [[], ["a", "b"], ("a",), {"a"}], ["ab", b"ab", {"a": 1}, ["a", 1], 3]),
        (a.PATH, ["x", Path("x")], ["", "a\0b", 3, b"x"]),
        (a.ARRAYS, [{}, {"x": 1}], [{1: 2}, ["x"]]),
        (a.TEXT_BY_TEXT, [{}, {"a": "b"}], [{"a": 1}, {1: "a"}, [("a", "b")]]),
        (a.FEEDS, [{"x": np.zeros(1)}], [{"x": [0]}, {1: np.zeros(1)}, np.zeros(1)]),
        (a.SHAPES, [{"x": (1, 2)}, {"x": []}], [{"x": 1}, {"x": "12"}, {"x": (1.0,)}, {1: (1,)}, [(1,)]]),
        (a.ARRAY, [np.zeros(2), [1, 2], 3, True], [None, "a", ["a"], object()]),
        (a.DIMS, [{"n": 1, "m": (1, 4), "k": (1, None), "t": "2*n"}], [{"n": (1,)}, {"n": (None, 1)}, {"n": 1.5}, 3]),
        (a.SPECIALIZE, [{"n": [1, (1, 4)]}, {"n": ()}], [{"n": 1}, {"n": ["a"]}, {1: [1]}, [1]]),
        (a.WIDTHS, [(8, 16), []], [8, "8", (8.0,)]),
        (a.FUNCTION, [len, lambda: 0], [3, "len"]),
        (a.CANCEL, [CancelToken()], [None, object()]),
        (a.either("a", "b"), ["a", "b"], ["c", "", 1]),
        (a.at_least(2), [2, HUGE - 1], [1, HUGE, True, 2.0]),
        (a.optional(a.at_least(2)), [None, 2], [1, "2"]),
        (a.instance(int, str, wanted="x"), [1, "a"], [1.0]),
        (a.instance(lambda: float, wanted="x"), [1.0], [1]),
    ],
)
def test_each_kind_takes_its_values_and_no_others(kind: a.Kind, fits: list[Any], refused: list[Any]) -> None:
    for value in fits:
        a.require("f", "x", value, kind)
    for value in refused:
        with pytest.raises(ArgumentError):
            a.require("f", "x", value, kind)


def test_a_refusal_names_function_argument_value_and_what_to_give() -> None:
    for value, said in ((None, "None"), (3, "int 3"), ("no", "str 'no'")):
        with pytest.raises(ArgumentError) as caught:
            a.require("load", "verify", value, a.FLAG)
        assert str(caught.value) == f"load: verify is {said}; give True or False"
    with pytest.raises(ArgumentError) as caught:
        a.require("load", "threads", 0, a.optional(a.at_least(1)))
    assert str(caught.value) == "load: threads is int 0; give a whole number of at least 1, or None"
    with pytest.raises(ArgumentError, match="give one of a, b"):
        a.require("load", "mode", "c", a.either("a", "b"))


def test_an_object_that_fails_when_it_is_looked_at_is_refused() -> None:
    def fails(value: object) -> bool:
        raise RuntimeError("do not look")

    with pytest.raises(ArgumentError):
        a.require("f", "x", 1, a.Kind("anything", fails))


def test_a_decorated_function_checks_what_it_is_given_by_position_or_name() -> None:
    @a.takes(count=a.at_least(1))
    def repeat(text: str, count: int = 0) -> str:
        return text * count

    assert repeat("ab", 2) == "abab"
    assert repeat("ab") == "", "a default is not checked"
    for call in (lambda: repeat("a", 0), lambda: repeat("a", count=0)):
        with pytest.raises(ArgumentError, match="repeat: count is int 0"):
            call()
    assert repeat.__name__ == "repeat"


def test_a_run_ends_after_its_deadline_and_never_without_one() -> None:
    assert a.end_of("run", None, None) == 0
    assert a.end_of("run", None, CancelToken()) == 0
    before = time.monotonic_ns()
    assert before + 2_000_000_000 <= a.end_of("run", 2.0, None) <= time.monotonic_ns() + 2_000_000_000
    with pytest.raises(ArgumentError, match="run: deadline is int -1"):
        a.end_of("run", -1, None)
    with pytest.raises(ArgumentError, match=r"run: cancel is int 3; give a graft.CancelToken"):
        a.end_of("run", None, 3)
