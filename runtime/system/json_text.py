"""JSON that comes from outside: data, or one kind of error for whatever is no JSON."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return what a text says; raise ValueError for what is no JSON, or is nested deeper than Python's parser goes."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
