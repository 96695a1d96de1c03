"""Dominators: a child, the one parent that all its run-time inputs come from, and every node in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.graph.view import constant_tensor
from graft.patterns.backtracking import Goals, Scope, Subject
from graft.patterns.language import Dominator
from graft.patterns.matcher import HANDLERS, Matcher, unfold, value_of

_Arms = tuple[ir.Value, "_Arms"] | None
"""Values that are still to be followed up the graph."""


@dataclass(frozen=True, slots=True, eq=False)
class _Paths:
    """What a dominator has found of its paths: the child, then the nodes between it and the parent."""

    pattern: Dominator
    inside: dict[ir.Node, None] = field(default_factory=dict)


def _dominator(matcher: Matcher, pattern: Dominator, value: Subject, scope: Scope) -> Goals:
    return matcher.goal(pattern.child, value, scope), (_below_child, _Paths(pattern), value, scope)


def _below_child(matcher: Matcher, paths: _Paths, value: Subject, scope: Scope) -> Goals | None:
    child = None if value is None else value.producer()
    if child is None:
        matcher.miss(paths.pattern, value, "the child of a dominator is computed by a node")
        return None
    return _enter(matcher, (paths, None), child, scope)


def _enter(matcher: Matcher, state: tuple[_Paths, _Arms], node: ir.Node, scope: Scope) -> Goals | None:
    """Take a node into the paths; what it reads at run time must come from the parent as well."""
    paths, left = state
    arms = [value for value in node.inputs if value is not None and constant_tensor(value) is None]
    if not arms:
        matcher.miss(paths.pattern, node, "it takes nothing from the parent")
        return None
    matcher.bind(paths.inside, node, None)
    for value in reversed(arms):
        left = (value, left)
    return ((_follow, paths, left, scope),)


def _follow(matcher: Matcher, paths: _Paths, left: _Arms, scope: Scope) -> Goals | Iterator[Goals] | None:
    """Follow one arm: its value is the parent, or a node of the path computes it."""
    parent = value_of(paths.pattern.parent, scope.bound)
    if left is None:
        if parent is not None and _post_dominated(parent, list(paths.inside)):
            return ()
        matcher.miss(paths.pattern, parent, "the path is also read from outside, or has no parent", "fused-use")
        return None
    value, rest = left
    if value is parent or value.producer() in paths.inside:
        return ((_follow, paths, rest, scope),)
    return _ways(matcher, paths, left, scope)


def _ways(matcher: Matcher, paths: _Paths, left: tuple[ir.Value, _Arms], scope: Scope) -> Iterator[Goals]:
    value, rest = left
    if value_of(paths.pattern.parent, scope.bound) is None:
        yield matcher.goal(paths.pattern.parent, value, scope), (_follow, paths, rest, scope)
    node = value.producer()
    if node is None or node.graph is not scope.graph:
        matcher.miss(paths.pattern, value, f"'{value.name}' does not come from the parent")
        return
    matcher.push(matcher.more, node)
    yield (*unfold(matcher, paths.pattern.path, value, scope), (_join, (paths, rest), node, scope))


def _join(matcher: Matcher, state: tuple[_Paths, _Arms], node: ir.Node, scope: Scope) -> Goals | None:
    """Take a node into the paths that fits the path's pattern, with all that it reads."""
    matcher.read(node, 0, scope)
    return _enter(matcher, state, node, scope)


def _post_dominated(parent: ir.Value, inside: list[ir.Node]) -> bool:
    """Whether every way down from the parent leads through the nodes inside to the child, the first of them."""
    members = set(inside)
    between = [parent, *(output for node in inside[1:] for output in node.outputs)]
    return all(not value.is_graph_output() and all(use.node in members for use in value.uses()) for value in between)


HANDLERS[Dominator] = _dominator
