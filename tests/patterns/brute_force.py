"""The meaning of patterns by brute force: every node tried for every part, every order of arguments, every option.

An oracle for small graphs: it shares nothing with the matcher but the classes of patterns. A match is what the parts
and the names stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.patterns.language import (
    Absent,
    Alternative,
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
from graft.patterns.value_constraints import Attributes, DtypeIs, RankIs

COMMUTATIVE = {"Add", "Mul", "Sum", "Max"}
State = dict[object, object]
"""What pattern objects and names (strings) stand for."""


def solutions(pattern: Pattern, node: ir.Node) -> list[State]:
    """Return everything that a pattern can stand for with a node as its root."""
    return list(fits(pattern, node.outputs[0], {}))


def fits(pattern: Pattern, value: ir.Value | None, state: State) -> Iterator[State]:
    """Yield the states in which a pattern stands for a value."""
    if pattern in state:
        known = state[pattern]
        same = known is value or (isinstance(known, ir.Node) and value is not None and known.outputs[0] is value)
        if same:
            yield state
        return
    match pattern:
        case Wildcard() if value is not None:
            yield {**state, pattern: value}
        case Absent() if value is None:
            yield state
        case ConstantPattern() if value is not None and ValueView(value).is_constant:
            yield {**state, pattern: value}
        case InputPattern() if value is not None and value.is_graph_input():
            yield {**state, pattern: value}
        case Alternative(options=options) | Optional(options=options):
            for option in options:
                for found in fits(option, value, state):
                    yield {**found, pattern: value}
        case Both(left=left, right=right):
            for found in fits(left, value, state):
                yield from fits(right, value, found)
        case Not(pattern=inner):
            if not any(True for _ in fits(inner, value, state)):
                yield state
        case Named(pattern=inner, name=name):
            if state.get(name, value) is value:
                yield from fits(inner, value, {**state, name: value})
        case Constrained(pattern=inner, constraint=constraint):
            for found in fits(inner, value, state):
                if value is not None and meets(constraint, value):
                    yield found
        case Output(node=operator, index=index):
            producer = None if value is None else value.producer()
            if producer is not None and value is producer.outputs[index]:
                yield from fits_operator(operator, producer, state)
        case Operator():
            producer = None if value is None else value.producer()
            if producer is not None and value is producer.outputs[0]:
                yield from fits_operator(pattern, producer, state)


def fits_operator(pattern: Operator, node: ir.Node, state: State) -> Iterator[State]:
    """Yield the states in which an operator's pattern stands for a node."""
    if node.op_type not in pattern.names:
        return
    state = {**state, pattern: node}
    arguments = pattern.arguments
    if arguments is None:
        yield state
        return
    inputs = list(node.inputs)
    if len(inputs) > len(arguments) and not pattern.prefix:
        return
    inputs += [None] * (len(arguments) - len(inputs))
    orders = permutations(inputs) if pattern.any_order or node.op_type in COMMUTATIVE else [tuple(inputs)]
    for order in orders:
        yield from _all(arguments, order, state)


def _all(arguments: tuple[Pattern, ...], values: tuple[ir.Value | None, ...], state: State) -> Iterator[State]:
    if not arguments:
        yield state
        return
    for found in fits(arguments[0], values[0], state):
        yield from _all(arguments[1:], values[1:], found)


def meets(constraint: object, value: ir.Value) -> bool:
    """Whether a value meets a demand."""
    view = ValueView(value)
    match constraint:
        case DtypeIs(dtypes=dtypes):
            return view.dtype in dtypes
        case RankIs(ranks=ranks):
            return view.rank in ranks
        case Attributes(wanted=wanted):
            node = value.producer()
            rank = view.rank or 0
            return node is not None and all(
                node.attributes[name].as_int() % rank == want % rank  # type: ignore[operator]
                for name, want in wanted
                if name in node.attributes
            ) and all(name in node.attributes for name, _ in wanted)  # fmt: skip
        case _:
            raise NotImplementedError(constraint)
