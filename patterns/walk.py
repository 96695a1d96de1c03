"""Walks over the parts of a pattern."""

from __future__ import annotations

from functools import lru_cache

from graft.patterns.language import (
    Alternative,
    Body,
    Both,
    Constrained,
    Dominator,
    Named,
    Not,
    Operator,
    Output,
    Pattern,
    SameShape,
    Together,
    Wildcard,
)


def parts(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the patterns of which a pattern is made, in the order in which they are matched."""
    match pattern:
        case Wildcard(target=target):
            return () if target is None else (target,)
        case Operator(arguments=arguments):
            return arguments or ()
        case Output(node=node):
            return (node,)
        case Alternative(options=options):
            return options
        case Both(left=left, right=right):
            return left, right
        case Body(pattern=inner, body=body):
            return inner, body
        case Constrained(pattern=inner, constraint=SameShape(other=other)):
            return inner, other
        case Not(pattern=inner) | Named(pattern=inner) | Constrained(pattern=inner):
            return (inner,)
        case Dominator(parent=parent, path=path, child=child):
            return child, path, parent
        case Together(members=members):
            return members
        case _:
            return ()


def walk(pattern: Pattern) -> list[Pattern]:
    """Return the pattern and all its parts, each once, outermost first."""
    seen: dict[Pattern, None] = {}
    stack = [pattern]
    while stack:
        part = stack.pop()
        if part not in seen:
            seen[part] = None
            stack.extend(reversed(parts(part)))
    return list(seen)


INVERSES = {"Sub": "Add", "Div": "Mul"}
"""Operators that undo an associative one: their second input counts as inverted."""


def family_of(pattern: Pattern) -> str | None:
    """Return the operator under which a pattern of one binary operator regroups: Add for Sub, itself for most."""
    if not isinstance(pattern, Operator) or pattern.domain or pattern.prefix or len(pattern.names) != 1:
        return None
    return INVERSES.get(pattern.names[0], pattern.names[0]) if len(pattern.arguments or ()) == 2 else None


def nest_family(pattern: Operator) -> str | None:
    """Return the family of a pattern that has another one of its family as an argument, else None."""
    family = family_of(pattern)
    nested = family is not None and any(family_of(argument) == family for argument in pattern.arguments or ())
    return family if nested else None


@lru_cache(maxsize=4096)
def root_operators(pattern: Pattern) -> frozenset[tuple[str, str]] | None:
    """Return (domain, operator) of the nodes that can be the pattern's root; None if that is not known.

    It is kept by the pattern's identity: a wildcard that is redirected later can only narrow the answer.
    """
    return _roots(pattern, ())


def _roots(pattern: Pattern, above: tuple[Pattern, ...]) -> frozenset[tuple[str, str]] | None:
    if pattern in above:
        return frozenset()
    inside = (*above, pattern)
    match pattern:
        case Wildcard(target=Pattern() as target):
            return _roots(target, inside)
        case Operator(names=names, domain=domain, key=""):
            family = nest_family(pattern)
            more = () if family is None else (family, *(name for name in INVERSES if INVERSES[name] == family))
            return frozenset((domain, name) for name in (*names, *more))
        case Output(node=inner) | Named(pattern=inner) | Constrained(pattern=inner) | Body(pattern=inner):
            return _roots(inner, inside)
        case Dominator(child=inner) | Together(members=(inner, *_)):
            return _roots(inner, inside)
        case Alternative(options=options):
            known = [_roots(option, inside) for option in options]
            return None if None in known else frozenset().union(*(roots for roots in known if roots is not None))
        case Both(left=left, right=right):
            first, second = _roots(left, inside), _roots(right, inside)
            if first is None or second is None:
                return second if first is None else first
            return first & second
        case _:
            return None
