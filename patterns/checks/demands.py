"""Demands on one value that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from graft.errors import PatternError
from graft.patterns.language import Body, Both, Constrained, Dominator, Named, Pattern, SameShape, Together, Wildcard
from graft.patterns.value_constraints import Attributes, Constraint, DtypeIs, RankIs, ShapeIs

Item = TypeVar("Item", str, int)


def innermost(pattern: Pattern) -> Pattern:
    """Return the pattern behind names, demands and aliases that stands for the same value."""
    seen: set[Pattern] = set()
    while pattern not in seen:
        seen.add(pattern)
        match pattern:
            case Named(pattern=inner) | Constrained(pattern=inner) | Body(pattern=inner):
                pattern = inner
            case Wildcard(target=Pattern() as target):
                pattern = target
            case Dominator(child=inner) | Together(members=(inner, *_)):
                pattern = inner
    return pattern


def demands(pattern: Pattern) -> Iterator[Constraint | SameShape]:
    """Yield what a pattern demands of its value, alternatives left aside."""
    match pattern:
        case Constrained(pattern=inner, constraint=constraint):
            yield constraint
            yield from demands(inner)
        case Both(left=left, right=right):
            yield from demands(left)
            yield from demands(right)
        case Named(pattern=inner) | Body(pattern=inner):
            yield from demands(inner)


def require_agreement(pattern: Pattern) -> None:
    """Raise PatternError if no value meets all that a pattern demands of it: two element types, ranks or attributes."""
    dtypes: set[str] | None = None
    ranks: set[int] | None = None
    attributes: dict[str, object] = {}
    for demand in demands(pattern):
        match demand:
            case DtypeIs(dtypes=wanted):
                dtypes = _common(dtypes, set(wanted), "element types")
            case RankIs(ranks=wanted_ranks):
                ranks = _common(ranks, set(wanted_ranks), "ranks")
            case ShapeIs(shape=shape) if ... not in shape:
                ranks = _common(ranks, {len(shape)}, "ranks")
            case Attributes(wanted=wanted_attributes):
                for name, value in wanted_attributes:
                    other = attributes.setdefault(name, value)
                    if not (callable(value) or callable(other) or value == other):
                        raise PatternError(
                            f"the pattern demands attribute {name} of one node to be {value!r} and {other!r}",
                            attribute=name,
                        )


def _common(known: set[Item] | None, wanted: set[Item], what: str) -> set[Item]:
    both = wanted if known is None else known & wanted
    if not both:
        texts = [" or ".join(map(str, sorted(one))) for one in (wanted, known or set())]
        raise PatternError(f"the pattern demands of one value the {what} {texts[0]} and {texts[1]}; it has one")
    return both
