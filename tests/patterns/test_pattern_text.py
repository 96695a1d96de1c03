from __future__ import annotations

import pytest

from graft.patterns import (
    Pattern,
    is_op,
    wildcard,
)
from graft.patterns.parse import parse_pattern
from tests.patterns.texts import TEXTS


@pytest.mark.parametrize(("pattern", "text"), TEXTS)
def test_a_pattern_prints_as_the_expression_that_builds_it(pattern: Pattern, text: str) -> None:
    assert str(pattern) == text


def test_same_shape_names_the_other_pattern() -> None:
    left = wildcard()
    text = str(is_op("Add")(left, wildcard().same_shape_as(left)))
    assert text == 'p1 = wildcard()\nis_op("Add")(p1, wildcard().same_shape_as(p1))'
    assert str(parse_pattern(text)) == text
