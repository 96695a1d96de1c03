"""A composite: a pattern with a name, one row of a backend's pattern table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from graft.patterns.language import Pattern

if TYPE_CHECKING:
    from graft.core.operators.definition.adjoint import Vjp
    from graft.core.reject import Reject
    from graft.patterns.match import Match

Check: TypeAlias = "Callable[[Match], Reject | bool | None]"


@dataclass(frozen=True, slots=True)
class Composite:
    """A group of operators that a backend computes as one.

    ``check`` sees a structural match and returns None (or True) to accept it, or a `Reject`; a refusal makes the
    matcher try the next possibility. Rows of a table stand in order of preference.

    ``vjp`` is the derivative of the group, a rule as an operator's row has it, which sees the operands in the order of
    the pattern (``f.input(0)``, ...), the result of the last node, and of each attribute that of the first node that
    has it. Without one the group is differentiated by the operators in it.
    """

    name: str
    pattern: Pattern
    check: Check | None = None
    vjp: Vjp | None = None
