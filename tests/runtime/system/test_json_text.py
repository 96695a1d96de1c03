"""JSON of anybody's."""

from __future__ import annotations

import pytest

from graft.runtime.system.json_text import parse_json


def test_text_and_bytes_are_data() -> None:
    assert parse_json('{"a": [1, null]}') == parse_json(b'{"a": [1, null]}') == {"a": [1, None]}


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 100_000, '{"a":' * 100_000])
def test_whatever_is_no_json_is_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1|nested too deeply|decode byte"):
        parse_json(text)
