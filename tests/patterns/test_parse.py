"""The parser of pattern text reads what is printed, and nothing else."""

from __future__ import annotations

import pytest

from graft.errors import PatternError
from graft.patterns.parse import parse_pattern
from tests.patterns.texts import TEXTS, is_small


@pytest.mark.parametrize("text", [text for _, text in TEXTS])
def test_the_parser_reads_back_what_was_printed(text: str) -> None:
    assert str(parse_pattern(text, {"is_small": is_small})) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("is_op('Conv'", "pattern text, line 1: '(' was never closed"),
        ("wildcrd()", "pattern text, line 1: unknown name 'wildcrd'; did you mean 'wildcard'?"),
        ("wildcard().name('x')", "pattern text, line 1: patterns have no method 'name'; did you mean 'named'?"),
        ("p = wildcard()\n__import__('os')", "pattern text, line 2: unknown name '__import__'"),
        ("wildcard().__class__", "pattern text, line 1: 'wildcard().__class__' is not part of the pattern language"),
        ("p = wildcard()", "pattern text must end with a pattern"),
        ("import os", "pattern text, line 1: wanted 'name = pattern' or a pattern"),
        ("is_op()", "is_op takes one or more operator names, got ()"),
        ("wildcard()()", "pattern text, line 1: 'wildcard()' cannot be called in a pattern"),
        (
            "wildcard().named()",
            "pattern text, line 1: 'wildcard().named()': "
            "Pattern.named() missing 1 required positional argument: 'name'",
        ),
    ],
)
def test_what_is_no_pattern_is_refused(text: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert str(caught.value) == message
