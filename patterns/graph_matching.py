"""Patterns that look at users as well as at producers: several roots, edges, dominators."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from graft.core.view import constant_tensor
from graft.patterns.language import Dominator, Edge, Operator, Pattern, Together
from graft.patterns.matcher import HANDLERS, Matcher, Subject, unfold, value_of
from graft.patterns.walk import parts, root_operators, walk


def _together(matcher: Matcher, pattern: Together, value: Subject) -> Iterator[None]:
    for _ in matcher.value(pattern.members[0], value):
        if value is not None:
            for _ in matcher.hold(pattern, value):
                yield from _others(matcher, pattern, value)


def _others(matcher: Matcher, pattern: Together, anchor: ir.Value) -> Iterator[None]:
    """Match the members that stand for nothing yet, one reached from what is bound at a time; then judge the edges."""
    bound = matcher.scope.bound
    left = [member for member in _all_members(pattern) if value_of(member, bound) is None]
    if not left:
        wrong = next((edge for edge in pattern.edges if not _holds(matcher, edge)), None)
        if wrong is None:
            yield
        else:
            text = "it is also read by others" if wrong.only else "it is not read by its consumer, or at another place"
            matcher.miss(wrong.producer, value_of(wrong.producer, bound), text)
        return
    member, candidates = _next(matcher, pattern, left, anchor)
    for candidate in candidates:
        for _ in matcher.value(member, candidate):
            yield from _others(matcher, pattern, anchor)


def _all_members(pattern: Together) -> list[Pattern]:
    ends = [end for edge in pattern.edges for end in (edge.consumer, edge.producer)]
    return list(dict.fromkeys((*pattern.members, *ends)))


def _next(matcher: Matcher, pattern: Together, left: list[Pattern], anchor: ir.Value) -> tuple[Pattern, list[ir.Value]]:
    """Return an unmatched member and the values that it may stand for."""
    bound = matcher.scope.bound
    for edge in pattern.edges:
        producer, consumer = value_of(edge.producer, bound), value_of(edge.consumer, bound)
        if producer is None and consumer is not None and edge.producer in left:
            reader = consumer.producer()
            inputs = () if reader is None else reader.inputs
            return edge.producer, list(dict.fromkeys(read for read in inputs if read is not None))
        if consumer is None and producer is not None and edge.consumer in left:
            return edge.consumer, _outputs_of_users(producer)
    for member in left:
        climbed = _climb(matcher, member)
        if climbed is not None:
            return member, climbed
    roots = root_operators(left[0])
    graph = anchor.producer().graph if anchor.producer() is not None else None  # type: ignore[union-attr]
    nodes = () if graph is None else graph
    chosen = [node for node in nodes if roots is None or (node.domain, node.op_type) in roots]
    return left[0], [output for node in chosen for output in node.outputs]


def _outputs_of_users(value: ir.Value) -> list[ir.Value]:
    return list(dict.fromkeys(output for use in value.uses() for output in use.node.outputs))


def _climb(matcher: Matcher, member: Pattern) -> list[ir.Value] | None:
    """Return the values above a bound part of the member, as high as the part lies below; None if no part is bound."""
    bound = matcher.scope.bound
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


def _holds(matcher: Matcher, edge: Edge) -> bool:
    """Whether the bound ends of an edge read one another as it says."""
    bound = matcher.scope.bound
    producer, consumer = value_of(edge.producer, bound), value_of(edge.consumer, bound)
    reader = None if consumer is None else consumer.producer()
    if producer is None or reader is None:
        return False
    uses = [use for use in producer.uses() if use.node is reader and edge.index in (None, use.idx)]
    if edge.only and (producer.is_graph_output() or any(use.node is not reader for use in producer.uses())):
        return False
    return bool(uses)


def _dominator(matcher: Matcher, pattern: Dominator, value: Subject) -> Iterator[None]:
    for _ in matcher.value(pattern.child, value):
        child = None if value is None else value.producer()
        if child is not None:
            yield from _paths(matcher, pattern, _computed_inputs(child), [child])


def _paths(matcher: Matcher, pattern: Dominator, left: list[ir.Value], inside: list[ir.Node]) -> Iterator[None]:
    """Match the values in ``left``, each as the parent or as one more node of the path."""
    parent = value_of(pattern.parent, matcher.scope.bound)
    if not left:
        if parent is not None and _post_dominated(parent, inside):
            yield
        else:
            matcher.miss(pattern, parent, "the path is also read from outside, or has no parent")
        return
    value, rest = left[0], left[1:]
    if parent is not None and value is parent:
        yield from _paths(matcher, pattern, rest, inside)
        return
    if parent is None:
        for _ in matcher.value(pattern.parent, value):
            yield from _paths(matcher, pattern, rest, inside)
    node = value.producer()
    if node is None:
        return
    if node in inside:
        yield from _paths(matcher, pattern, rest, inside)
        return
    for _ in unfold(matcher, pattern.path, value):
        matcher.more.append(node)
        try:
            yield from _paths(matcher, pattern, [*rest, *_computed_inputs(node)], [*inside, node])
        finally:
            matcher.more.pop()


def _computed_inputs(node: ir.Node) -> list[ir.Value]:
    """Return the inputs of a node that are neither constants nor inputs of the graph."""
    return [value for value in node.inputs if value is not None and value.producer() is not None and not _known(value)]


def _known(value: ir.Value) -> bool:
    return constant_tensor(value) is not None


def _post_dominated(parent: ir.Value, inside: list[ir.Node]) -> bool:
    """Whether every way down from the parent leads through the nodes inside to the child, the first of them."""
    between = [parent, *(output for node in inside[1:] for output in node.outputs)]
    return all(not value.is_graph_output() and all(use.node in inside for use in value.uses()) for value in between)


def roots_of(pattern: Pattern) -> list[Pattern]:
    """Return the patterns, beside the root, whose values may be used outside a match.

    Those are the members of a `Together` that no edge gives one consumer alone.
    """
    kept: list[Pattern] = []
    for part in walk(pattern):
        if isinstance(part, Together):
            only = {edge.producer for edge in part.edges if edge.only}
            kept.extend(member for member in _all_members(part) if member not in only)
    return list(dict.fromkeys(kept))


HANDLERS[Together] = _together
HANDLERS[Dominator] = _dominator
