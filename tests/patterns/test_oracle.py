"""The matcher finds what brute force finds: random patterns at every node of random graphs."""

from __future__ import annotations

import random

import onnx_ir as ir
import pytest

from graft.errors import PatternError
from graft.patterns import Pattern, dominates, is_constant, is_input, is_op, wildcard
from graft.patterns.checks.validate import validate
from graft.patterns.language import Alternative, Named, Operator, Wildcard
from graft.patterns.match import Match
from graft.patterns.matching import matches
from graft.patterns.walk import parts, walk
from tests.patterns.brute_force import State, solutions

UNARY, BINARY, VARIADIC = ("Relu", "Exp", "Softmax"), ("Add", "Mul", "Sub"), ("Sum", "Max", "Concat")
OPERATORS = (*UNARY, *BINARY, *VARIADIC)
FLOAT = ir.TensorType(ir.DataType.FLOAT)


def drawn_graph(draw: random.Random) -> ir.Graph:
    """Return a graph of a few nodes that often read one value twice."""
    inputs = [ir.Value(name=name, shape=ir.Shape([2, 3]), type=FLOAT) for name in "xz"]
    constant = ir.Value(name="k", shape=ir.Shape([2, 3]), type=FLOAT)
    constant.const_value = ir.tensor([[1.0, 2.0, 3.0]] * 2, dtype=ir.DataType.FLOAT, name="k")
    values, nodes = [*inputs, constant], []
    for number in range(draw.randint(2, 5)):
        operator = draw.choice(OPERATORS)
        count = 1 if operator in UNARY else 2 if operator in BINARY else draw.randint(2, 4)
        read = [draw.choice(values[-4:]) for _ in range(count)]
        axis = {"axis": draw.choice((0, 1, -1, -2))} if operator in ("Softmax", "Concat") else {}
        attributes = [ir.AttrInt64(name, value) for name, value in axis.items()]
        node = ir.Node("", operator, read, attributes, name=f"n{number}")
        node.outputs[0].name, node.outputs[0].shape, node.outputs[0].type = f"v{number}", ir.Shape([2, 3]), FLOAT
        nodes.append(node)
        values.append(node.outputs[0])
    return ir.Graph(inputs, values[-1:], nodes=nodes, initializers=[constant], opset_imports={"": 21}, name="g")


def drawn_pattern(draw: random.Random, shared: list[Pattern], depth: int = 3) -> Pattern:
    """Return a pattern; parts of it are used again now and then."""
    kind = draw.random()
    if shared and kind < 0.12:
        return draw.choice(shared)
    if depth == 0 or kind < 0.3:
        leaf = draw.choice((wildcard(), wildcard(), is_constant(), is_input(), wildcard().named(draw.choice("ab"))))
        shared.append(leaf)
        return leaf
    if kind < 0.4:
        return drawn_pattern(draw, shared, depth - 1) | drawn_pattern(draw, shared, depth - 1)
    if kind < 0.44:
        return drawn_pattern(draw, shared, depth - 1) & drawn_pattern(draw, shared, depth - 1)
    if kind < 0.48:
        return ~is_op(draw.choice(UNARY))
    if kind < 0.53:
        return drawn_pattern(draw, shared, depth - 1).optional(lambda inner: is_op("Relu")(inner))
    operator = draw.choice(OPERATORS)
    count = 1 if operator in UNARY else 2 if operator in BINARY else draw.randint(1, 4)
    rest = (...,) if operator in VARIADIC and draw.random() < 0.2 else ()
    made = is_op(operator)(*(drawn_pattern(draw, shared, depth - 1) for _ in range(count)), *rest)
    made = made.in_any_order() if operator == "Concat" and draw.random() < 0.5 else made
    shared.append(made)
    if operator == "Softmax" and draw.random() < 0.5:
        return made.has_attr(axis=draw.choice((-1, 1)))
    return made.named("c") if draw.random() < 0.1 else made


def told(pattern: Pattern, found: Match | State) -> frozenset[tuple[int, str]]:
    """Return what a match says: operators and names by what they stand for.

    Wildcards that stand nowhere else are left aside: orders of theirs are one match.
    """
    order = {part: number for number, part in enumerate(walk(pattern))}
    mentions = [part for owner in order for part in parts(owner)]
    bindings = found.bindings if isinstance(found, Match) else found
    kept = [
        (order[part], stands_for.name)
        for part, stands_for in bindings.items()
        if part in order
        and stands_for is not None
        and (isinstance(part, Operator) or (isinstance(part, Wildcard) and mentions.count(part) > 1))
    ]
    names = found.captures if isinstance(found, Match) else found
    named = {part.name for part in order if isinstance(part, Named)}
    return frozenset((*kept, *((-ord(name), names[name].name) for name in named if names.get(name) is not None)))


def nests(pattern: Pattern) -> bool:
    """Whether operators stand in each other that regroup: brute force matches as it is written."""
    family = {"Sub": "Add"}
    operators = [part for part in walk(pattern) if isinstance(part, Operator)]
    inner = [(part, one) for part in operators for one in part.arguments or () if isinstance(one, Operator)]
    return any(family.get(a.names[0], a.names[0]) == family.get(b.names[0], b.names[0]) for a, b in inner)


def disagreements(seeds: range) -> list[str]:
    """Return what the matcher and brute force see differently."""
    found: list[str] = []
    for seed in seeds:
        draw = random.Random(seed)
        graph, pattern = drawn_graph(draw), drawn_pattern(draw, [])
        try:
            validate(pattern)
        except PatternError:
            if any(isinstance(part, Alternative) for part in walk(pattern)):
                continue  # a way that leads nowhere is a mistake, though another one is open
            impossible = [one for node in graph for one in solutions(pattern, node)]
            found += [f"seed {seed}: {pattern} is refused, and matches"] if impossible else []
            continue
        for node in graph:
            wanted = {told(pattern, one) for one in solutions(pattern, node)}
            got = {told(pattern, one) for one in matches(pattern, node)}
            if got != wanted and not (nests(pattern) and wanted <= got):
                found.append(f"seed {seed}, {node.name}: {pattern}: {sorted(map(sorted, got ^ wanted))}")
    return found


def test_the_matcher_finds_what_brute_force_finds() -> None:
    assert disagreements(range(1500)) == []


@pytest.mark.conformance
def test_the_matcher_finds_what_brute_force_finds_in_many_graphs() -> None:
    assert disagreements(range(1500, 60_000)) == []


def dominated(child: ir.Node, parents: tuple[str, ...], path: tuple[str, ...]) -> set[frozenset[str]]:
    """Return the groups between a child and a parent that all its run-time inputs come from, by brute force."""
    found: set[frozenset[str]] = set()
    assert child.graph is not None
    for node in child.graph:
        parent = node.outputs[0]
        inside: set[ir.Node] = set()
        waiting, is_whole = [child], node.op_type in parents and node is not child
        while waiting and is_whole:
            inner = waiting.pop()
            inside.add(inner)
            arms = [one for one in inner.inputs if one is not None and one.const_value is None and one is not parent]
            is_whole = any(one is not None and one.const_value is None for one in inner.inputs)
            for producer in (arm.producer() for arm in arms):
                is_whole &= producer is not None and producer.op_type in path and producer is not node
                if is_whole and producer is not None and producer not in inside:
                    waiting.append(producer)
        values = [parent, *(inner.outputs[0] for inner in inside - {child})]
        users = {use.node for value in values for use in value.uses()}
        if is_whole and users <= inside and not any(value.is_graph_output() for value in values):
            found.add(frozenset((node.name or "", *(inner.name or "" for inner in inside))))
    return found


def test_dominators_are_those_that_brute_force_finds() -> None:
    hits = 0
    for seed in range(800):
        draw = random.Random(seed)
        graph = drawn_graph(draw)
        parents, path = tuple(draw.sample(OPERATORS, 3)), tuple(draw.sample(OPERATORS, 5))
        for node in graph:
            pattern = dominates(is_op(*parents), is_op(*path), is_op(node.op_type))
            wanted = dominated(node, parents, path)
            got = {frozenset(one.name or "" for one in match.members) for match in matches(pattern, node)}
            assert got == wanted, f"seed {seed}, {node.name}: {pattern}"
            hits += bool(wanted)
    assert hits > 60


def test_brute_force_finds_something_often_enough_to_tell() -> None:
    counts = 0
    for seed in range(300):
        draw = random.Random(seed)
        graph, pattern = drawn_graph(draw), drawn_pattern(draw, [])
        counts += any(solutions(pattern, node) for node in graph) and any(
            isinstance(part, Operator) for part in walk(pattern)
        )
    assert counts > 40
