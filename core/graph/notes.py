"""Notes in a model's metadata: JSON that Graft wrote, or that stands in a file of anybody's under the same key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graft.errors import ModelError
from graft.runtime.foreign import one_line
from graft.runtime.system.json_text import parse_json

LONGEST = 60


def noted(properties: Mapping[str, str], key: str, is_good: Callable[[Any], bool]) -> Any:
    """Return what metadata says under a key, None where it says nothing; raise ModelError where that is not good."""
    text = properties.get(key)
    if text is None:
        return None
    try:
        found = parse_json(text)
        if is_good(found):
            return found
        why = "it has another form"
    except ValueError as error:
        why = str(error)
    shown = one_line(text if len(text) <= LONGEST else f"{text[:LONGEST]}...")
    raise ModelError(f"the model's metadata '{key}' is not what Graft writes there, but {shown}: {why}", value=key)
