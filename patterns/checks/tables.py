"""Rows of a backend's table that can never form a composite, and rows that an earlier row leaves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from graft.errors import PatternError
from graft.patterns import language
from graft.patterns.checks.demands import demands, innermost
from graft.patterns.checks.validate import validate
from graft.patterns.composite import Composite
from graft.patterns.value_constraints import Attributes, DtypeIs, RankIs
from graft.patterns.walk import parts, walk

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
CALLS = frozenset({"graft.composite", "graft.region"})


def require_composites(backend: str, rows: Sequence[Composite]) -> None:
    """Raise PatternError, naming the composite, if a row of a backend's table is wrong or can never form."""
    names: set[str] = set()
    for row in rows:
        if row.name in names:
            raise PatternError(
                f"backend '{backend}' has two composites named '{row.name}'; give each row its own name",
                plugin=backend,
                composite=row.name,
            )
        names.add(row.name)
        try:
            require_row(row.pattern)
        except PatternError as error:
            raise PatternError(
                f"composite '{row.name}' of backend '{backend}': {error}", plugin=backend, composite=row.name
            ) from error


def shadowed(rows: Sequence[Composite]) -> Iterator[tuple[Composite, Composite]]:
    """Yield the rows that never form in the order of the table, with the earlier row that takes all their matches.

    Only what patterns and demands prove is told: an earlier row with a check shadows nothing.
    """
    for place, row in enumerate(rows):
        for earlier in rows[:place]:
            if earlier.check is None and _takes_all(earlier.pattern, row.pattern):
                yield row, earlier
                break


def shadow_text(backend: str, row: Composite, earlier: Composite) -> str:
    """Return what there is to say of a row that an earlier one leaves nothing."""
    return (
        f"composite '{row.name}' of backend '{backend}' never forms: the earlier row '{earlier.name}' takes whatever "
        f"it matches; put '{row.name}' first"
    )


def require_row(pattern: language.Pattern) -> None:
    """Raise PatternError if a pattern is wrong, has no node, or one that is in no composite: a call, control flow."""
    validate(pattern)
    always = _always(pattern, ())
    if not any(isinstance(part, language.Operator) for part in walk(pattern)):
        raise PatternError("the pattern has no operator, so that it has no node to compute")
    for part in always:
        if part.domain in CALLS:
            raise PatternError("the pattern holds a call of a composite or a region, which is in no composite")
        if part.domain == "" and set(part.names) <= CONTROL_FLOW:
            raise PatternError(f"the pattern holds {part.title}, and control flow is in no composite")
        if part.domain == "" and part.names == ("Constant",):
            raise PatternError("the pattern holds Constant, and constants are folded; write is_constant()")


def _always(pattern: language.Pattern, above: tuple[language.Pattern, ...]) -> frozenset[language.Operator]:
    """Return the operators that are in every match of a pattern."""
    if pattern in above:
        return frozenset()
    inside = (*above, pattern)
    match pattern:
        case language.Operator(arguments=arguments):
            return frozenset((pattern,)).union(*(_always(one, inside) for one in arguments or ()))
        case language.Alternative(options=options):
            return frozenset.intersection(*(_always(option, inside) for option in options))
        case language.Both() | language.Together() | language.Wildcard() | language.Output():
            return frozenset().union(*(_always(one, inside) for one in parts(pattern)))
        case language.Named(pattern=inner) | language.Constrained(pattern=inner) | language.Body(pattern=inner):
            return _always(inner, inside)
        case language.Dominator(parent=parent, child=child):
            return _always(parent, inside) | _always(child, inside)
        case _:
            return frozenset()


def _takes_all(general: language.Pattern, special: language.Pattern) -> bool:
    """Whether, wherever a pattern matches and stands, another one, which is tried first, does so with the same root.

    The general pattern is a tree. It has its root alone, or as many operators as the special one: so no value inside
    its match is needed outside where none inside the other is.
    """
    own = [part for part in walk(general) if isinstance(part, language.Operator)]
    others = [part for part in walk(special) if isinstance(part, language.Operator)]
    mentions = Counter(part for owner in walk(general) for part in parts(owner))
    names = Counter(part.name for part in walk(general) if isinstance(part, language.Named))
    is_tree = all(count == 1 for count in (*mentions.values(), *names.values()))
    return is_tree and (len(own) == 1 or len(own) == len(others)) and _covers(general, special)


def _covers(general: language.Pattern, special: language.Pattern) -> bool:
    """Whether every value that matches ``special`` matches ``general``."""
    if isinstance(special, language.Alternative) and not isinstance(general, language.Alternative):
        return all(_covers(general, option) for option in special.options)
    inner = innermost(special)
    match general:
        case language.Named(pattern=wanted):
            return _covers(wanted, special)
        case language.Alternative(options=options):
            return any(_covers(option, special) for option in options)
        case language.Constrained(pattern=wanted, constraint=constraint):
            return _covers(wanted, special) and any(_implies(demand, constraint) for demand in demands(special))
        case language.Wildcard(target=None):
            return isinstance(
                inner,
                language.Wildcard
                | language.Operator
                | language.Output
                | language.ConstantPattern
                | language.InputPattern,
            )
        case language.Absent():
            return isinstance(inner, language.Absent)
        case language.ConstantPattern(value=None, predicate=None) | language.InputPattern(name=""):
            return type(inner) is type(general)
        case language.Operator():
            return isinstance(inner, language.Operator) and _covers_node(general, inner)
        case _:
            return False


def _covers_node(general: language.Operator, special: language.Operator) -> bool:
    same = (general.domain, general.key) == (special.domain, special.key) and set(special.names) <= set(general.names)
    if not same or general.arguments is None:
        return same
    if special.arguments is None or (special.any_order and not general.any_order):
        return False
    counts = len(general.arguments), len(special.arguments)
    fits = counts[0] <= counts[1] if general.prefix else counts[0] == counts[1] and not special.prefix
    return fits and all(map(_covers, general.arguments, special.arguments))


def _implies(stronger: object, weaker: object) -> bool:
    match stronger, weaker:
        case Attributes(wanted=mine), Attributes(wanted=other):
            simple = all(isinstance(value, str | int | float) for _, value in (*mine, *other))
            return simple and set(other) <= set(mine)
        case DtypeIs(dtypes=mine), DtypeIs(dtypes=other):
            return set(mine) <= set(other)
        case RankIs(ranks=mine), RankIs(ranks=other):
            return set(mine) <= set(other)
        case _:
            return False
