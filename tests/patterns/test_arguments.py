"""Arguments of demands are checked where a pattern is built."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graft.errors import PatternError
from graft.patterns import (
    Pattern,
    wildcard,
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.has_dtype("FLOAT"), "has_dtype: 'FLOAT' is not an element type; did you mean 'float32'?"),
        (lambda p: p.has_dtype("flaot16"), "has_dtype: 'flaot16' is not an element type; did you mean 'float16'?"),
        (lambda p: p.has_shape((1, 3)), "has_shape takes the dimensions one by one; write has_shape(1, 3)"),
        (
            lambda p: p.has_shape(1.5),
            "has_shape: 1.5 is not a dimension; write a number, a name, an expression of names, None for any "
            "or ... for several",
        ),
        (lambda p: p.has_rank("3"), "has_rank takes one or more numbers, as in has_rank(3, 4), got '3'"),
        (lambda p: p.where(3), "where takes a function of a value, got 3"),
    ],
)
def test_demands_that_can_never_hold_are_errors(build: Callable[[Pattern], Pattern], message: str) -> None:
    with pytest.raises(PatternError) as caught:
        build(wildcard())
    assert str(caught.value) == message
