"""The matcher: complete backtracking over alternatives, argument orders and optional parts.

Every handler is a generator: it yields once for every way in which its pattern fits, with the bindings in place, and
takes them back when it is resumed or closed. So whatever comes later (a sibling, a check) can ask for another way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, TypeAlias

import onnx_ir as ir

from graft.core.operators.all import OPERATORS
from graft.core.operators.table import OperatorTable, Trait
from graft.core.view import NodeView
from graft.errors import PatternError
from graft.patterns.associative import groupings
from graft.patterns.constraints import constant_violation, violation
from graft.patterns.demands import SameShape
from graft.patterns.language import (
    Absent,
    Alternative,
    Body,
    Both,
    ConstantPattern,
    Constrained,
    InputPattern,
    Named,
    Not,
    Operator,
    Optional,
    Output,
    Pattern,
    Wildcard,
)
from graft.patterns.match import Match
from graft.patterns.walk import nest_family, walk

STEP_LIMIT = 200_000
"""Steps for one pattern at one node; a pattern that needs more is ambiguous beyond use."""

Subject: TypeAlias = "ir.Value | None"
Found: TypeAlias = "ir.Node | ir.Value | None"


@dataclass(slots=True)
class Scope:
    """What patterns and names stand for; an unfolding of a recursive pattern has a scope of its own."""

    bound: dict[Pattern, Found] = field(default_factory=dict)
    captures: dict[str, Subject] = field(default_factory=dict)


class Matcher:
    """Matches patterns against a graph; ``operators`` says which operators commute and associate."""

    def __init__(self, operators: OperatorTable = OPERATORS) -> None:
        self.operators = operators
        self.scope = Scope()
        self.closed: list[Scope] = []
        """Scopes of unfoldings that are matched, outermost first."""
        self.more: list[ir.Node] = []
        """Nodes that belong to the match although no pattern stands for them."""
        self.pending: list[Callable[[], bool]] = []
        """Demands that can only be judged when the whole is matched."""
        self.steps = 0

    def matches(self, pattern: Pattern, node: ir.Node) -> Iterator[Match]:
        """Yield every way in which the pattern fits with ``node`` as its root, preferred ones first."""
        self.steps = 0
        for output in node.outputs:
            for _ in self.value(pattern, output):
                if all(demand() for demand in self.pending):
                    yield self._match(pattern, node)

    def _match(self, pattern: Pattern, node: ir.Node) -> Match:
        bindings: dict[Pattern, Found] = {}
        repeated: dict[str, list[ir.Value]] = {}
        members = set(self.more)
        for scope in (self.scope, *self.closed):
            members.update(found for found in scope.bound.values() if isinstance(found, ir.Node))
            for part, found in scope.bound.items():
                bindings.setdefault(part, found)
            for name, value in scope.captures.items():
                values = repeated.setdefault(name, [])
                if value is not None and value not in values:
                    values.append(value)
        inside = frozenset(member for member in members if member.graph is node.graph)
        captures = {name: values[0] if values else None for name, values in repeated.items()}
        return Match(pattern, NodeView(node), bindings, captures, inside, repeated)

    def miss(self, pattern: Pattern, subject: Found, text: str) -> None:
        """Take note of a pattern that does not fit; `graft.patterns.explain` overrides it."""

    def value(self, pattern: Pattern, value: Subject) -> Generator[None]:
        """Yield once for every way in which the pattern fits the value (None: an absent input)."""
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise PatternError(
                f"a pattern took more than {STEP_LIMIT} steps at one node; give its alternatives different operators"
            )
        bound = self.scope.bound
        if pattern in bound and not isinstance(pattern, Operator):
            if bound[pattern] is value:
                yield
            else:
                self.miss(pattern, value, "the pattern already stands for another value")
            return
        yield from HANDLERS[type(pattern)](self, pattern, value)

    def hold(self, pattern: Pattern, value: Found) -> Generator[None]:
        """Bind a pattern while the caller looks on."""
        bound = self.scope.bound
        bound[pattern] = value
        try:
            yield
        finally:
            del bound[pattern]

    def node(self, pattern: Operator, node: ir.Node) -> Iterator[None]:
        """Yield once for every way in which an operator's pattern fits a node."""
        bound = self.scope.bound
        if pattern in bound:
            if bound[pattern] is node:
                yield
            else:
                self.miss(pattern, node, "the pattern already stands for another node")
            return
        named = named_so(pattern, node)
        if not named:
            self.miss(pattern, node, f"wanted {pattern.title}")
            if nest_family(pattern) is None:
                return
        bound[pattern] = node
        try:
            if not named:
                yield from self._regrouped(pattern, node)
            elif pattern.arguments is None:
                yield
            else:
                for values in self._arrangements(pattern, node, len(pattern.arguments)):
                    yield from self.values(pattern.arguments, values, 0)
                yield from self._regrouped(pattern, node)
        finally:
            del bound[pattern]

    def values(self, patterns: tuple[Pattern, ...], values: tuple[Subject, ...], first: int) -> Iterator[None]:
        """Yield once for every way in which the patterns from ``first`` on fit the values."""
        if first == len(patterns):
            yield
            return
        for _ in self.value(patterns[first], values[first]):
            yield from self.values(patterns, values, first + 1)

    def _arrangements(self, pattern: Operator, node: ir.Node, count: int) -> Iterator[tuple[Subject, ...]]:
        """Yield the node's inputs in every order in which the patterns may meet them."""
        inputs = node.inputs
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        if len(inputs) > count and not pattern.prefix:
            self.miss(pattern, node, f"has {len(inputs)} inputs, wanted {count}; close the arguments with ... for more")
            return
        values = (*inputs, *(None for _ in range(count - len(inputs))))
        yield values
        if len(inputs) < 2 or count < 2:
            return
        if pattern.any_order or (len(inputs) > 2 and self.operators.has(NodeView(node), Trait.COMMUTATIVE)):
            orders = permutations(values)
            next(orders)
            yield from orders
        elif self.operators.has(NodeView(node), Trait.COMMUTATIVE):
            yield values[1], values[0], *values[2:]

    def _regrouped(self, pattern: Operator, node: ir.Node) -> Iterator[None]:
        """Yield the ways in which a nest of one associative operator fits in another grouping."""
        bound = self.scope.bound
        for patterns, values, inner in groupings(pattern, node, self.operators):
            if any(part in bound for part in inner):
                continue
            bound.update(inner)
            try:
                yield from self.values(patterns, values, 0)
            finally:
                for part in inner:
                    del bound[part]


def named_so(pattern: Operator, node: ir.Node) -> bool:
    """Whether the node has one of the pattern's operator names (or, for a call, composite or backend names)."""
    if node.domain != pattern.domain:
        return False
    if pattern.key:
        return not pattern.names or node.metadata_props.get(pattern.key) in pattern.names
    return node.op_type in pattern.names


def unfold(matcher: Matcher, pattern: Pattern, value: Subject) -> Iterator[None]:
    """Match a pattern in a scope of its own: its parts match afresh, patterns outside of it keep their meaning."""
    outer = matcher.scope
    fresh = set(walk(pattern))
    inner = Scope({part: found for part, found in outer.bound.items() if part not in fresh})
    known = set(inner.bound)
    matcher.scope = inner
    try:
        for _ in matcher.value(pattern, value):
            own = {part: found for part, found in inner.bound.items() if part not in known}
            matcher.closed.append(Scope(own, dict(inner.captures)))
            matcher.scope = outer
            try:
                yield
            finally:
                matcher.closed.pop()
                matcher.scope = inner
    finally:
        matcher.scope = outer


def _wildcard(matcher: Matcher, pattern: Wildcard, value: Subject) -> Iterator[None]:
    if pattern.target is not None:
        yield from unfold(matcher, pattern.target, value)
    elif value is None:
        matcher.miss(pattern, value, "the input is absent, wanted a value")
    else:
        yield from matcher.hold(pattern, value)


def _absent(matcher: Matcher, pattern: Absent, value: Subject) -> Iterator[None]:
    if value is None:
        yield
    else:
        matcher.miss(pattern, value, f"the input is '{value.name}', wanted none")


def _constant(matcher: Matcher, pattern: ConstantPattern, value: Subject) -> Iterator[None]:
    wrong = "the input is absent, wanted a constant" if value is None else constant_violation(pattern, value)
    if wrong is not None:
        matcher.miss(pattern, value, wrong)
    else:
        yield from matcher.hold(pattern, value)


def _input(matcher: Matcher, pattern: InputPattern, value: Subject) -> Iterator[None]:
    if value is None or not value.is_graph_input() or (pattern.name and value.name != pattern.name):
        wanted = f"the graph's input '{pattern.name}'" if pattern.name else "an input of the graph"
        found = "the input is absent" if value is None else f"'{value.name}' is something else"
        matcher.miss(pattern, value, f"{found}, wanted {wanted}")
    else:
        yield from matcher.hold(pattern, value)


def _operator(matcher: Matcher, pattern: Operator, value: Subject) -> Iterator[None]:
    yield from _produced(matcher, pattern, value, 0)


def _output(matcher: Matcher, pattern: Output, value: Subject) -> Iterator[None]:
    yield from _produced(matcher, pattern.node, value, pattern.index)


def _produced(matcher: Matcher, pattern: Operator, value: Subject, index: int) -> Iterator[None]:
    node = None if value is None else value.producer()
    if node is None or value is None:
        found = "the input is absent" if value is None else f"'{value.name}' is not computed by a node"
        matcher.miss(pattern, value, f"{found}, wanted {pattern.title}")
    elif value.index() != index:
        matcher.miss(pattern, value, f"'{value.name}' is output {value.index()} of its node, wanted output {index}")
    else:
        yield from matcher.node(pattern, node)


def _alternative(matcher: Matcher, pattern: Alternative, value: Subject) -> Iterator[None]:
    for option in pattern.options:
        for _ in matcher.value(option, value):
            yield from matcher.hold(pattern, value)


def _both(matcher: Matcher, pattern: Both, value: Subject) -> Iterator[None]:
    for _ in matcher.value(pattern.left, value):
        yield from matcher.value(pattern.right, value)


def _not(matcher: Matcher, pattern: Not, value: Subject) -> Iterator[None]:
    attempt = matcher.value(pattern.pattern, value)
    for _ in attempt:
        attempt.close()
        matcher.miss(pattern, value, "the pattern that is excluded here matches")
        return
    yield


def _named(matcher: Matcher, pattern: Named, value: Subject) -> Iterator[None]:
    captures = matcher.scope.captures
    if pattern.name in captures:
        if captures[pattern.name] is not value:
            matcher.miss(pattern, value, f"'{pattern.name}' already stands for another value")
            return
        yield from matcher.value(pattern.pattern, value)
        return
    captures[pattern.name] = value
    try:
        yield from matcher.value(pattern.pattern, value)
    finally:
        del captures[pattern.name]


def _constrained(matcher: Matcher, pattern: Constrained, value: Subject) -> Iterator[None]:
    constraint = pattern.constraint
    for _ in matcher.value(pattern.pattern, value):
        if isinstance(constraint, SameShape):
            yield from _same_shape(matcher, pattern, constraint, value)
            continue
        wrong = "the input is absent" if value is None else violation(constraint, value)
        if wrong is None:
            yield
        else:
            matcher.miss(pattern, value, wrong)


def _same_shape(matcher: Matcher, pattern: Pattern, constraint: SameShape, value: Subject) -> Iterator[None]:
    bound = matcher.scope.bound

    def demand() -> bool:
        other = value_of(constraint.other, bound)
        same = value is not None and other is not None and value.shape is not None and value.shape == other.shape
        if not same:
            matcher.miss(pattern, value, f"its shape is not that of '{other.name if other else 'nothing'}'")
        return same

    matcher.pending.append(demand)
    try:
        yield
    finally:
        matcher.pending.pop()


def _body(matcher: Matcher, pattern: Body, value: Subject) -> Iterator[None]:
    for _ in matcher.value(pattern.pattern, value):
        node = None if value is None else value.producer()
        attribute = None if node is None else node.attributes.get(pattern.name)
        if attribute is None or attribute.type != ir.AttributeType.GRAPH:
            matcher.miss(pattern, value, f"has no body '{pattern.name}'")
            continue
        results = attribute.as_graph().outputs
        if pattern.output >= len(results):
            matcher.miss(pattern, value, f"body '{pattern.name}' has {len(results)} outputs")
        else:
            yield from matcher.value(pattern.body, results[pattern.output])


def value_of(pattern: Pattern, bound: Mapping[Pattern, Found]) -> Subject:
    """Return the value that a pattern stands for: its own binding, or that of the pattern it wraps."""
    match pattern:
        case Output(node=node, index=index):
            found = bound.get(node)
            return found.outputs[index] if isinstance(found, ir.Node) else None
        case Named(pattern=inner) | Constrained(pattern=inner) | Body(pattern=inner):
            return value_of(inner, bound)
        case Both(left=left, right=right):
            first = value_of(left, bound)
            return value_of(right, bound) if first is None else first
        case _:
            found = bound.get(pattern)
            return found.outputs[0] if isinstance(found, ir.Node) else found


HANDLERS: dict[type[Pattern], Callable[[Matcher, Any, Subject], Iterator[None]]] = {
    Wildcard: _wildcard,
    Absent: _absent,
    ConstantPattern: _constant,
    InputPattern: _input,
    Operator: _operator,
    Output: _output,
    Alternative: _alternative,
    Optional: _alternative,
    Both: _both,
    Not: _not,
    Named: _named,
    Constrained: _constrained,
    Body: _body,
}
"""The handler of every kind of pattern; `graft.patterns.graph_matching` adds those that look at users."""
