"""Walks over the parts of a pattern."""

from __future__ import annotations

from functools import lru_cache

from graft.patterns import language


def parts(pattern: language.Pattern) -> tuple[language.Pattern, ...]:
    """Return the patterns of which a pattern is made, in the order in which they are matched."""
    match pattern:
        case language.Wildcard(target=target):
            return () if target is None else (target,)
        case language.Operator(arguments=arguments):
            return arguments or ()
        case language.Output(node=node):
            return (node,)
        case language.Alternative(options=options):
            return options
        case language.Both(left=left, right=right):
            return left, right
        case language.Body(pattern=inner, body=body):
            return inner, body
        case language.Constrained(pattern=inner, constraint=language.SameShape(other=other)):
            return inner, other
        case language.Not(pattern=inner) | language.Named(pattern=inner) | language.Constrained(pattern=inner):
            return (inner,)
        case language.Dominator(parent=parent, path=path, child=child):
            return child, path, parent
        case language.Together(members=members):
            return members
        case _:
            return ()


def walk(pattern: language.Pattern) -> list[language.Pattern]:
    """Return the pattern and all its parts, each once, outermost first."""
    seen: dict[language.Pattern, None] = {}
    stack = [pattern]
    while stack:
        part = stack.pop()
        if part not in seen:
            seen[part] = None
            stack.extend(reversed(parts(part)))
    return list(seen)


@lru_cache(maxsize=4096)
def operators_in(pattern: language.Pattern) -> frozenset[str]:
    """Return the names of all operators in a pattern, of whatever domain."""
    return frozenset(name for part in walk(pattern) if isinstance(part, language.Operator) for name in part.names)


INVERSES = {"Sub": "Add", "Div": "Mul"}
"""Operators that undo an associative one: their second input counts as inverted."""


def family_of(pattern: language.Pattern) -> str | None:
    """Return the operator under which a pattern of one binary operator regroups: Add for Sub, itself for most."""
    if not isinstance(pattern, language.Operator) or pattern.domain or pattern.prefix or len(pattern.names) != 1:
        return None
    return INVERSES.get(pattern.names[0], pattern.names[0]) if len(pattern.arguments or ()) == 2 else None


def nest_family(pattern: language.Operator) -> str | None:
    """Return the family of a pattern that has another one of its family as an argument, else None."""
    family = family_of(pattern)
    nested = family is not None and any(family_of(argument) == family for argument in pattern.arguments or ())
    return family if nested else None


@lru_cache(maxsize=4096)
def root_operators(pattern: language.Pattern) -> frozenset[tuple[str, str]] | None:
    """Return (domain, operator) of the nodes that can be the pattern's root; None if that is not known.

    It is kept by the pattern's identity: a wildcard that is redirected later can only narrow the answer.
    """
    return _roots(pattern, ())


def _roots(pattern: language.Pattern, above: tuple[language.Pattern, ...]) -> frozenset[tuple[str, str]] | None:
    if pattern in above:
        return frozenset()
    inside = (*above, pattern)
    match pattern:
        case language.Wildcard(target=language.Pattern() as target):
            return _roots(target, inside)
        case language.Operator(names=names, domain=domain, key=""):
            family = nest_family(pattern)
            more = () if family is None else (family, *(name for name in INVERSES if INVERSES[name] == family))
            return frozenset((domain, name) for name in (*names, *more))
        case (
            language.Output(node=inner)
            | language.Named(pattern=inner)
            | language.Constrained(pattern=inner)
            | language.Body(pattern=inner)
        ):
            return _roots(inner, inside)
        case language.Dominator(child=inner) | language.Together(members=(inner, *_)):
            return _roots(inner, inside)
        case language.Alternative(options=options):
            known = [_roots(option, inside) for option in options]
            return None if None in known else frozenset().union(*(roots for roots in known if roots is not None))
        case language.Both(left=left, right=right):
            first, second = _roots(left, inside), _roots(right, inside)
            if first is None or second is None:
                return second if first is None else first
            return first & second
        case _:
            return None
