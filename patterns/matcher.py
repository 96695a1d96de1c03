"""The matcher: complete backtracking over alternatives, argument orders and optional parts.

Every handler is a generator: it yields once for every way in which its pattern fits, with the bindings in place, and
takes them back when it is resumed or closed. So whatever comes later (a sibling, a check) can ask for another way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import permutations
from typing import Any, TypeAlias

import onnx_ir as ir

from graft.core.operators.all import OPERATORS
from graft.core.operators.table import OperatorTable, Trait
from graft.core.view import NodeView
from graft.errors import PatternError
from graft.patterns.constraints import constant_violation, violation
from graft.patterns.language import (
    Absent,
    Alternative,
    Both,
    Call,
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

STEP_LIMIT = 200_000
"""Steps for one pattern at one node; a pattern that needs more is ambiguous beyond use."""

_Subject: TypeAlias = "ir.Value | None"
_Found: TypeAlias = "ir.Node | ir.Value | None"


class Matcher:
    """Matches patterns against a graph; ``operators`` says which operators commute."""

    def __init__(self, operators: OperatorTable = OPERATORS) -> None:
        self.operators = operators
        self.bound: dict[Pattern, _Found] = {}
        self.captures: dict[str, ir.Value | None] = {}
        self.steps = 0

    def matches(self, pattern: Pattern, node: ir.Node) -> Iterator[Match]:
        """Yield every way in which the pattern fits with ``node`` as its root."""
        self.steps = 0
        for output in node.outputs:
            for _ in self.value(pattern, output):
                yield Match(pattern, NodeView(node), dict(self.bound), dict(self.captures))

    def miss(self, pattern: Pattern, subject: _Found, text: str) -> None:
        """Take note of a pattern that does not fit; `graft.patterns.explain` overrides it."""

    def value(self, pattern: Pattern, value: _Subject) -> Generator[None]:
        """Yield once for every way in which the pattern fits the value (None: an absent input)."""
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise PatternError(
                f"a pattern took more than {STEP_LIMIT} steps at one node; give its alternatives different operators"
            )
        handler = _HANDLERS[type(pattern)]
        if pattern in self.bound and not isinstance(pattern, Operator):
            if self.bound[pattern] is value:
                yield
            else:
                self.miss(pattern, value, "the pattern already stands for another value")
            return
        yield from handler(self, pattern, value)

    def hold(self, pattern: Pattern, value: _Found) -> Iterator[None]:
        """Bind a pattern while the caller looks on."""
        self.bound[pattern] = value
        try:
            yield
        finally:
            del self.bound[pattern]

    def node(self, pattern: Operator, node: ir.Node) -> Iterator[None]:
        """Yield once for every way in which an operator's pattern fits a node."""
        if pattern in self.bound:
            if self.bound[pattern] is node:
                yield
            else:
                self.miss(pattern, node, "the pattern already stands for another node")
            return
        if not named_so(pattern, node):
            self.miss(pattern, node, f"wanted {' or '.join(pattern.names)}")
            return
        self.bound[pattern] = node
        try:
            if pattern.arguments is None:
                yield
            else:
                for values in self._arrangements(pattern, node, len(pattern.arguments)):
                    yield from self._arguments(pattern.arguments, values, 0)
        finally:
            del self.bound[pattern]

    def _arguments(self, patterns: tuple[Pattern, ...], values: tuple[_Subject, ...], first: int) -> Iterator[None]:
        if first == len(patterns):
            yield
            return
        for _ in self.value(patterns[first], values[first]):
            yield from self._arguments(patterns, values, first + 1)

    def _arrangements(self, pattern: Operator, node: ir.Node, count: int) -> Iterator[tuple[_Subject, ...]]:
        inputs = node.inputs
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        if len(inputs) > count and not pattern.prefix:
            self.miss(pattern, node, f"has {len(inputs)} inputs, wanted {count}; close the arguments with ... for more")
            return
        values = (*inputs, *(None for _ in range(count - len(inputs))))
        yield values
        if len(inputs) < 2 or count < 2 or not self.operators.has(NodeView(node), Trait.COMMUTATIVE):
            return
        if len(inputs) == 2:
            yield values[1], values[0], *values[2:]
        else:
            yield from list(permutations(values))[1:]


def named_so(pattern: Operator, node: ir.Node) -> bool:
    """Whether the node has one of the pattern's operator names (or, for a call, composite or backend names)."""
    if node.domain != pattern.domain:
        return False
    if isinstance(pattern, Call):
        return not pattern.names or node.metadata_props.get(pattern.key) in pattern.names
    return node.op_type in pattern.names


def root_operators(pattern: Pattern) -> frozenset[tuple[str, str]] | None:
    """Return (domain, operator) of the nodes that can be the pattern's root; None if that is not known."""
    match pattern:
        case Call():
            return None
        case Operator(names=names, domain=domain):
            return frozenset((domain, name) for name in names)
        case Output(node=node):
            return root_operators(node)
        case Named(pattern=inner) | Constrained(pattern=inner):
            return root_operators(inner)
        case Alternative(options=options):
            known = [root_operators(option) for option in options]
            return None if None in known else frozenset().union(*(roots for roots in known if roots is not None))
        case Both(left=left, right=right):
            first, second = root_operators(left), root_operators(right)
            return first & second if first is not None and second is not None else first or second
        case _:
            return None


def _wildcard(matcher: Matcher, pattern: Wildcard, value: _Subject) -> Iterator[None]:
    if value is None:
        matcher.miss(pattern, value, "the input is absent, wanted a value")
        return
    yield from matcher.hold(pattern, value)


def _absent(matcher: Matcher, pattern: Absent, value: _Subject) -> Iterator[None]:
    if value is None:
        yield
    else:
        matcher.miss(pattern, value, f"the input is '{value.name}', wanted none")


def _constant(matcher: Matcher, pattern: ConstantPattern, value: _Subject) -> Iterator[None]:
    wrong = "the input is absent, wanted a constant" if value is None else constant_violation(pattern, value)
    if wrong is not None:
        matcher.miss(pattern, value, wrong)
        return
    yield from matcher.hold(pattern, value)


def _input(matcher: Matcher, pattern: InputPattern, value: _Subject) -> Iterator[None]:
    if value is None or not value.is_graph_input() or (pattern.name and value.name != pattern.name):
        name = f" '{pattern.name}'" if pattern.name else ""
        matcher.miss(pattern, value, f"wanted the graph's input{name}" if name else "wanted an input of the graph")
        return
    yield from matcher.hold(pattern, value)


def _operator(matcher: Matcher, pattern: Operator, value: _Subject) -> Iterator[None]:
    yield from _produced(matcher, pattern, value, 0)


def _output(matcher: Matcher, pattern: Output, value: _Subject) -> Iterator[None]:
    yield from _produced(matcher, pattern.node, value, pattern.index)


def _produced(matcher: Matcher, pattern: Operator, value: _Subject, index: int) -> Iterator[None]:
    node = None if value is None else value.producer()
    if node is None or value is None:
        found = "the input is absent" if value is None else f"'{value.name}' is not computed by a node"
        matcher.miss(pattern, value, f"{found}, wanted {' or '.join(pattern.names)}")
        return
    if value.index() != index:
        matcher.miss(pattern, value, f"'{value.name}' is output {value.index()} of its node, wanted output {index}")
        return
    yield from matcher.node(pattern, node)


def _alternative(matcher: Matcher, pattern: Alternative, value: _Subject) -> Iterator[None]:
    for option in pattern.options:
        for _ in matcher.value(option, value):
            yield from matcher.hold(pattern, value)


def _both(matcher: Matcher, pattern: Both, value: _Subject) -> Iterator[None]:
    for _ in matcher.value(pattern.left, value):
        yield from matcher.value(pattern.right, value)


def _not(matcher: Matcher, pattern: Not, value: _Subject) -> Iterator[None]:
    attempt = matcher.value(pattern.pattern, value)
    for _ in attempt:
        attempt.close()
        matcher.miss(pattern, value, "the pattern that is excluded here matches")
        return
    yield


def _named(matcher: Matcher, pattern: Named, value: _Subject) -> Iterator[None]:
    if pattern.name in matcher.captures:
        if matcher.captures[pattern.name] is not value:
            matcher.miss(pattern, value, f"'{pattern.name}' already stands for another value")
            return
        yield from matcher.value(pattern.pattern, value)
        return
    matcher.captures[pattern.name] = value
    try:
        yield from matcher.value(pattern.pattern, value)
    finally:
        del matcher.captures[pattern.name]


def _constrained(matcher: Matcher, pattern: Constrained, value: _Subject) -> Iterator[None]:
    for _ in matcher.value(pattern.pattern, value):
        wrong = "the input is absent" if value is None else violation(pattern.constraint, value)
        if wrong is None:
            yield
        else:
            matcher.miss(pattern, value, wrong)


_HANDLERS: dict[type[Pattern], Callable[[Matcher, Any, _Subject], Iterator[None]]] = {
    Wildcard: _wildcard,
    Absent: _absent,
    ConstantPattern: _constant,
    InputPattern: _input,
    Operator: _operator,
    Call: _operator,
    Output: _output,
    Alternative: _alternative,
    Optional: _alternative,
    Both: _both,
    Not: _not,
    Named: _named,
    Constrained: _constrained,
}


def matches(pattern: Pattern, node: ir.Node, operators: OperatorTable = OPERATORS) -> Iterator[Match]:
    """Yield every match of the pattern whose root is ``node``, in order of preference."""
    return Matcher(operators).matches(pattern, node)
