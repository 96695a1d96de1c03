"""Matching patterns against nodes and graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable
from graft.core.reject import Reject, plain
from graft.errors import GraftError, PatternError
from graft.patterns import graph_matching  # adds the handlers of patterns that look at users
from graft.patterns.checks.validate import validate
from graft.patterns.language import Pattern
from graft.patterns.match import Match
from graft.patterns.matcher import Matcher
from graft.patterns.walk import root_operators

__all__ = ["extract", "graph_matching", "match", "matches"]

MatchCheck: TypeAlias = Callable[[Match], "Reject | bool | None"]


def matches(pattern: Pattern, node: ir.Node | NodeView, operators: OperatorTable = OPERATORS) -> Iterator[Match]:
    """Yield every way in which the pattern fits with ``node`` as its root, preferred ones first."""
    return Matcher(operators).matches(pattern, node.node if isinstance(node, NodeView) else node)


def match(
    pattern: Pattern,
    node: ir.Node | NodeView,
    check: MatchCheck | None = None,
    operators: OperatorTable = OPERATORS,
) -> Match | None:
    """Return the first match of the pattern rooted at ``node`` that ``check`` accepts, None where there is none.

    Raises PatternError if the pattern names an unknown operator or attribute.
    """
    validate(pattern)
    return next((found for found in matches(pattern, node, operators) if accepts(check, found)), None)


def extract(
    pattern: Pattern,
    graph: ir.Graph | ir.Function | Iterable[ir.Node],
    check: MatchCheck | None = None,
    operators: OperatorTable = OPERATORS,
) -> tuple[Match, ...]:
    """Return the matches in a graph that share no node, later roots choosing first, in the order of their roots.

    Raises PatternError if the pattern names an unknown operator or attribute.
    """
    validate(pattern)
    roots = root_operators(pattern)
    taken: set[ir.Node] = set()
    found: list[Match] = []
    for node in reversed(list(graph)):
        if node in taken or (roots is not None and (node.domain, node.op_type) not in roots):
            continue
        for candidate in matches(pattern, node, operators):
            if candidate.members and not candidate.members & taken and accepts(check, candidate):
                found.append(candidate)
                taken.update(candidate.members)
                break
    return tuple(reversed(found))


def accepts(check: MatchCheck | None, found: Match) -> bool:
    """Whether a check accepts a match: it returns None or True."""
    return refusal(check, found) is None


def refusal(check: MatchCheck | None, found: Match) -> Reject | None:
    """Return why a check refuses a match, None if it accepts; raise PatternError for a check that fails."""
    if check is None:
        return None
    name = getattr(check, "__name__", "check")
    try:
        answer = plain(check(found))
    except GraftError:
        raise
    except Exception as error:
        raise PatternError(
            f"the check '{name}' of a pattern raised {type(error).__name__} at {found.root.where}: {error}"
        ) from error
    if answer is None or answer is True:
        return None
    if answer is False:
        return Reject("no-pattern", "the check gave no reason")
    if isinstance(answer, Reject):
        return answer
    raise PatternError(
        f"the check '{name}' of a pattern answered {answer!r} at {found.root.where}; "
        "a check returns None or True to accept, or a Reject"
    )
