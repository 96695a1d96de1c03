"""Rewriting: matches replaced by new nodes, to a fixed point or once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

from graft.core.operators.all import OPERATORS
from graft.core.operators.table import OperatorTable
from graft.core.view import ValueView
from graft.errors import PatternError
from graft.patterns.graph_matching import roots_of
from graft.patterns.language import Pattern
from graft.patterns.match import Match
from graft.patterns.matcher import value_of
from graft.patterns.search import MatchCheck, accepts, matches
from graft.patterns.validate import validate
from graft.patterns.walk import root_operators

PASS_LIMIT = 100
"""Passes over the graph after which rules are taken to undo each other."""


class NewNodes:
    """Makes the nodes of a replacement: ``op("Gemm", x, w, transB=1)`` returns the first output."""

    def __init__(self) -> None:
        self._tape = tape.Tape()

    def __call__(self, op_type: str, *inputs: ir.Value | ValueView | None, **attributes: object) -> ir.Value:
        """Return the output of a new ONNX node; None is an absent input."""
        return self.several(op_type, 1, *inputs, **attributes)[0]

    def several(
        self, op_type: str, outputs: int, *inputs: ir.Value | ValueView | None, **attributes: object
    ) -> Sequence[ir.Value]:
        """Return the outputs of a new node with several."""
        values = [value.value if isinstance(value, ValueView) else value for value in inputs]
        given: dict[str, Any] = dict(attributes)
        return self._tape.op_multi_out(op_type, values, given, num_outputs=outputs)

    def constant(self, contents: np.ndarray) -> ir.Value:
        """Return the output of a new Constant node."""
        return self("Constant", value=ir.tensor(contents))

    @property
    def nodes(self) -> Sequence[ir.Node]:
        """The nodes made, in order."""
        return self._tape.nodes


Build: TypeAlias = "Callable[[Match, NewNodes], ir.Value | ValueView | Sequence[ir.Value | ValueView] | None]"


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern and what replaces it.

    ``build(match, op)`` makes nodes with ``op("Relu", value)`` and returns the value that replaces the root's first
    output (one value per root for a pattern with several roots), or None to leave this match alone. With ``once`` the
    rule runs over the graph a single time and does not see what it made.
    """

    name: str
    pattern: Pattern
    build: Build
    check: MatchCheck | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Rewritten:
    """How often every rule was applied, and the passes that it took."""

    applied: Counter[str] = field(default_factory=Counter)
    passes: int = 0

    def __bool__(self) -> bool:
        return bool(self.applied)


def rewrite(
    graph: ir.Graph | ir.Function, rules: Sequence[Rule], operators: OperatorTable = OPERATORS, limit: int = PASS_LIMIT
) -> Rewritten:
    """Apply rules to a graph in place, in their order, until none applies; nodes without use are removed.

    Raises PatternError, with the rules that still apply, if that takes more than ``limit`` passes.
    """
    for rule in rules:
        validate(rule.pattern)
    applied: Counter[str] = Counter()
    passes = 0
    left = list(rules)
    while left:
        passes += 1
        changed = Counter({rule.name: count for rule in left if (count := _apply(graph, rule, operators))})
        applied.update(changed)
        left = [rule for rule in left if not rule.once]
        if not changed:
            break
        if passes >= limit:
            names = ", ".join(f"'{name}'" for name in changed)
            raise PatternError(
                f"after {limit} passes the rules {names} still apply; they undo each other, or make what they match",
                rules=tuple(changed),
            )
    return Rewritten(applied, passes)


def _apply(graph: ir.Graph | ir.Function, rule: Rule, operators: OperatorTable) -> int:
    """Apply a rule once at every node that the graph has now; return how often it applied."""
    roots = root_operators(rule.pattern)
    count = 0
    for node in list(graph):
        if node.graph is None or (roots is not None and (node.domain, node.op_type) not in roots):
            continue
        for match in matches(rule.pattern, node, operators):
            if accepts(rule.check, match) and _replace(graph, rule, match):
                count += 1
                break
    return count


def _replace(graph: ir.Graph | ir.Function, rule: Rule, match: Match) -> bool:
    """Put what the rule builds in the place of a match; return whether it built anything."""
    op = NewNodes()
    built = rule.build(match, op)
    if built is None:
        return False
    given = [built] if isinstance(built, ir.Value | ValueView) else built
    new = [value.value if isinstance(value, ValueView) else value for value in given]
    members = roots_of(rule.pattern)
    old = [value for part in members if (value := value_of(part, match.bindings)) is not None]
    old = old or [match.root.node.outputs[0]]
    if len(old) != len(new):
        raise PatternError(
            f"rule '{rule.name}' built {len(new)} values at {match.root.where}, its pattern has {len(old)} outputs",
            rule=rule.name,
        )
    nodes = list(op.nodes)
    anchor = _last(graph, match) if len(old) > 1 else match.root.node
    graph.insert_after(anchor, nodes)
    for before, after in zip(old, new, strict=True):
        _take_over(before, after)
    if len(old) > 1:
        graph.sort()
    _remove_unused(graph, match)
    return True


def _last(graph: ir.Graph | ir.Function, match: Match) -> ir.Node:
    return [node for node in graph if node in match.members][-1]


def _take_over(before: ir.Value, after: ir.Value) -> None:
    """Let ``after`` stand wherever ``before`` did, under its name, with its type and shape where it has none."""
    if after.type is None:
        after.type = before.type
    if after.shape is None and before.shape is not None:
        after.shape = before.shape.copy()
    name = before.name
    is_output = before.is_graph_output()
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    if is_output and after.producer() is not None and not after.is_initializer():
        before.name = f"{name}_replaced"
        after.name = name


def _remove_unused(graph: ir.Graph | ir.Function, match: Match) -> None:
    """Remove the nodes of a match that nothing reads any more, consumers first."""
    for node in reversed(match.sorted_members()):
        unused = all(not output.uses() and not output.is_graph_output() for output in node.outputs)
        if node.graph is not None and unused:
            graph.remove(node, safe=True)
