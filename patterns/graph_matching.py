"""Patterns that look at users as well as at producers: several roots, and edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import onnx_ir as ir

from graft.patterns import dominators  # adds the handler of dominators
from graft.patterns.backtracking import Goals, Scope, Subject
from graft.patterns.language import Edge, Operator, Pattern, Together
from graft.patterns.matcher import HANDLERS, Matcher, value_of
from graft.patterns.walk import parts, root_operators, walk

__all__ = ["dominators", "roots_of"]


def _together(matcher: Matcher, pattern: Together, value: Subject, scope: Scope) -> Goals | None:
    if value is None:
        matcher.miss(pattern, value, "the input is absent, wanted a value")
        return None
    first = matcher.goal(pattern.members[0], value, scope)
    return first, (_is_root, pattern, value, scope), (_others, pattern, value, scope)


def _is_root(matcher: Matcher, pattern: Together, value: ir.Value, scope: Scope) -> Goals:
    matcher.bind(scope.bound, pattern, value)
    return ()


def _others(matcher: Matcher, pattern: Together, anchor: ir.Value, scope: Scope) -> Goals | Iterator[Goals] | None:
    """Match the members that stand for nothing yet, one reached from what is bound at a time; then judge the edges."""
    members = _all_members(pattern)
    standing = {member: value_of(member, scope.bound) for member in members}
    left = [member for member, value in standing.items() if value is None]
    taken = [value for value in standing.values() if value is not None]
    if len(set(taken)) < len(taken):
        matcher.miss(pattern, anchor, "two of the patterns stand for one value")
        return None
    if left:
        member, candidates = _next(scope, pattern, left, anchor)
        again = (_others, pattern, anchor, scope)
        return ((matcher.goal(member, one, scope), again) for one in candidates if one not in taken)
    wrong = next((edge for edge in pattern.edges if not _holds(scope, edge)), None)
    if wrong is None:
        return ()
    text = "it is also read by others" if wrong.only else "it is not read by its consumer, or at another place"
    matcher.miss(wrong.producer, value_of(wrong.producer, scope.bound), text, "fused-use" if wrong.only else "")
    return None


def _all_members(pattern: Together) -> list[Pattern]:
    ends = [end for edge in pattern.edges for end in (edge.consumer, edge.producer)]
    return list(dict.fromkeys((*pattern.members, *ends)))


def _next(scope: Scope, pattern: Together, left: list[Pattern], anchor: ir.Value) -> tuple[Pattern, list[ir.Value]]:
    """Return an unmatched member and the values that it may stand for."""
    bound = scope.bound
    for edge in pattern.edges:
        producer, consumer = value_of(edge.producer, bound), value_of(edge.consumer, bound)
        if producer is None and consumer is not None and edge.producer in left:
            reader = consumer.producer()
            inputs = () if reader is None else reader.inputs
            return edge.producer, list(dict.fromkeys(read for read in inputs if read is not None))
        if consumer is None and producer is not None and edge.consumer in left:
            return edge.consumer, _outputs_of_users(producer)
    for member in left:
        climbed = _climb(scope, member)
        if climbed is not None:
            return member, climbed
    roots = root_operators(left[0])
    graph = anchor.producer().graph if anchor.producer() is not None else None  # type: ignore[union-attr]
    nodes = () if graph is None else graph
    chosen = [node for node in nodes if roots is None or (node.domain, node.op_type) in roots]
    return left[0], [output for node in chosen for output in node.outputs]


def _outputs_of_users(value: ir.Value) -> list[ir.Value]:
    return list(dict.fromkeys(output for use in value.uses() for output in use.node.outputs))


def _climb(scope: Scope, member: Pattern) -> list[ir.Value] | None:
    """Return the values above a bound part of the member, as high as the part lies below; None if no part is bound."""
    bound = scope.bound
    level: list[tuple[Pattern, int]] = [(member, 0)]
    seen: set[Pattern] = set()
    while level:
        part, depth = level.pop(0)
        found = value_of(part, bound)
        if found is not None:
            reached = [found] if depth else []
            if isinstance(part, Operator) and found.producer() is not None:
                reached = list(found.producer().outputs)  # type: ignore[union-attr]
            for _ in range(depth):
                reached = list(dict.fromkeys(output for value in reached for output in _outputs_of_users(value)))
            return reached
        if part not in seen:
            seen.add(part)
            step = 1 if isinstance(part, Operator) else 0
            level.extend((inner, depth + step) for inner in parts(part))
    return None


def _holds(scope: Scope, edge: Edge) -> bool:
    """Whether the bound ends of an edge read one another as it says."""
    bound = scope.bound
    producer, consumer = value_of(edge.producer, bound), value_of(edge.consumer, bound)
    reader = None if consumer is None else consumer.producer()
    if producer is None or reader is None:
        return False
    uses = [use for use in producer.uses() if use.node is reader and edge.index in (None, use.idx)]
    if edge.only and (producer.is_graph_output() or any(use.node is not reader for use in producer.uses())):
        return False
    return bool(uses)


@lru_cache(maxsize=4096)
def roots_of(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the patterns, beside the root, whose values may be used outside a match.

    Those are the members of a `Together` that no edge gives one consumer alone.
    """
    kept: list[Pattern] = []
    for part in walk(pattern):
        if isinstance(part, Together):
            only = {edge.producer for edge in part.edges if edge.only}
            kept.extend(member for member in _all_members(part) if member not in only)
    return tuple(dict.fromkeys(kept))


HANDLERS[Together] = _together
