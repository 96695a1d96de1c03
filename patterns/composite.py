"""A composite: a pattern with a name, one row of a backend's pattern table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from graft.patterns.language import Pattern

if TYPE_CHECKING:
    from graft.core.reject import Reject
    from graft.patterns.match import Match

Check: TypeAlias = "Callable[[Match], Reject | bool | None]"


@dataclass(frozen=True, slots=True)
class Composite:
    """A group of operators that a backend computes as one.

    ``check`` sees a structural match and returns None (or True) to accept it, or a `Reject`; a refusal makes the
    matcher try the next possibility. Rows of a table stand in order of preference.
    """

    name: str
    pattern: Pattern
    check: Check | None = None
