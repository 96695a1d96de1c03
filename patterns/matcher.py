"""The matcher: complete backtracking over alternatives, argument orders and optional parts.

Every handler is a step of the `Machine`: it refuses a value, or says what remains to be matched, in one way or in
several. So whatever comes later (a sibling, a check) can ask for another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.patterns import language
from graft.patterns.assignment import Assignment
from graft.patterns.associative import Place, at, groupings
from graft.patterns.backtracking import Found, Goal, Goals, Machine, Scope, Step, Subject
from graft.patterns.dimensions import Misfit, fit_shape, judged, shape_misfit
from graft.patterns.match import Match
from graft.patterns.operands import Read, operands_of
from graft.patterns.value_checks import constant_violation, violation
from graft.patterns.value_constraints import ShapeIs
from graft.patterns.walk import family_of, nest_family, parts, root_operators, walk

Ways = Iterator[Goals]


class Matcher(Machine):
    """Matches patterns against a graph; ``operators`` says which operators commute and associate."""

    explains: ClassVar[bool] = False
    """Whether what does not fit is of interest, too."""

    def __init__(self, operators: OperatorTable = OPERATORS) -> None:
        super().__init__()
        self.operators = operators
        self.scopes: list[Scope] = []
        """The scope of the pattern, then those of unfoldings, outermost first."""
        self.more: list[ir.Node] = []
        """Nodes that belong to the match although no pattern stands for them."""
        self.reads: list[Read] = []
        """The inputs of matched nodes in the order in which the pattern comes to them."""
        self.pending: list[Callable[[], bool]] = []
        """Demands that can only be judged when the whole is matched."""
        self._facts = _Facts(Counter(), frozenset())

    def matches(self, pattern: language.Pattern, node: ir.Node) -> Iterator[Match]:
        """Yield every way in which the pattern fits with ``node`` as its root, preferred ones first.

        One search of a matcher at a time: a new one ends those before. Raises StepLimitError for an endless one.
        """
        self.forget()
        self._facts = _facts_of(pattern)
        for output in node.outputs:
            self.scopes[:] = [Scope(node.graph)]
            for _ in self.solutions(self.goal(pattern, output, self.scopes[0])):
                if all(demand() for demand in self.pending):
                    yield self._match(pattern, node)

    def _match(self, pattern: language.Pattern, node: ir.Node) -> Match:
        bindings: dict[language.Pattern, Found] = {}
        repeated: dict[str, list[ir.Value]] = {}
        members = set(self.more)
        for scope in self.scopes:
            members.update(found for found in scope.bound.values() if isinstance(found, ir.Node))
            for part, found in scope.bound.items():
                bindings.setdefault(part, found)
            for name, value in scope.captures.items():
                values = repeated.setdefault(name, [])
                if value is not None and value not in values:
                    values.append(value)
        inside = frozenset(member for member in members if member.graph is node.graph)
        captures = {name: values[0] if values else None for name, values in repeated.items()}
        operands = operands_of(self.reads, inside)
        dimensions = dict(self.scopes[0].dimensions)
        return Match(pattern, NodeView(node), bindings, captures, inside, repeated, operands, dimensions)

    def miss(self, pattern: language.Pattern, subject: Found, text: str, code: str = "") -> None:
        """Take note of a pattern that does not fit; `graft.patterns.explain` overrides it.

        ``code`` is the reason's, where it does not follow from the kind of pattern.
        """

    def goal(self, pattern: language.Pattern, value: Subject, scope: Scope) -> Goal:
        """Return the goal that a pattern fits a value (None: an absent input)."""
        return _fits, pattern, value, scope

    def read(self, node: ir.Node, first: int, scope: Scope) -> None:
        """Note that a matched node reads its inputs from ``first`` on, for which there are no patterns."""
        for index in range(first, len(node.inputs)):
            if node.inputs[index] is not None:
                self.push(self.reads, Read(node, index, None, scope))

    def stands_alone(self, pattern: language.Pattern) -> bool:
        """Whether an argument is a wildcard without a name that stands nowhere else: like any other one of its kind."""
        return isinstance(pattern, language.Wildcard) and pattern.target is None and self._facts.mentions[pattern] == 1

    def regroups(self, pattern: language.Operator) -> bool:
        """Whether a nest is tried in other groupings: not where it is part of a larger one, which tries them all."""
        return pattern in self._facts.nests


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of a whole pattern: how often its parts are mentioned, and the nests that have other groupings."""

    mentions: Counter[language.Pattern]
    nests: frozenset[language.Operator]


@lru_cache(maxsize=4096)
def _facts_of(pattern: language.Pattern) -> _Facts:
    """Return what is known of a pattern, kept by its identity as `root_operators` is."""
    owners = walk(pattern)
    mentions = Counter(part for owner in owners for part in parts(owner))
    nests = [part for part in owners if isinstance(part, language.Operator) and nest_family(part) is not None]
    inner = {
        argument
        for nest in nests
        for argument in nest.arguments or ()
        if mentions[argument] == 1 and family_of(argument) == family_of(nest)
    }
    return _Facts(mentions, frozenset(nest for nest in nests if nest not in inner))


def _fits(matcher: Matcher, pattern: language.Pattern, value: Subject, scope: Scope) -> Goals | Ways | None:
    bound = scope.bound
    if pattern in bound and not isinstance(pattern, language.Operator):
        if bound[pattern] is value:
            return ()
        matcher.miss(pattern, value, "the pattern already stands for another value")
        return None
    return HANDLERS[type(pattern)](matcher, pattern, value, scope)


def _holds(matcher: Matcher, pattern: language.Pattern, value: Found, scope: Scope) -> Goals | None:
    """Bind a pattern whose parts are matched."""
    if pattern not in scope.bound:
        matcher.bind(scope.bound, pattern, value)
    return ()


def fits_node(matcher: Matcher, pattern: language.Operator, node: ir.Node, scope: Scope) -> Goals | Ways | None:
    """Match an operator's pattern with a node."""
    bound = scope.bound
    if pattern in bound:
        if bound[pattern] is node:
            return ()
        matcher.miss(pattern, node, "the pattern already stands for another node")
        return None
    named = named_so(pattern, node)
    nested = pattern.arguments is not None and matcher.regroups(pattern)
    if not named:
        matcher.miss(pattern, node, f"wanted {pattern.title}")
        if not nested:
            return None
    matcher.bind(bound, pattern, node)
    if pattern.arguments is None:
        matcher.read(node, 0, scope)
        return ()
    if nested:
        return _groupings(matcher, pattern, node, scope, named)
    return _arrangements(matcher, pattern, node, scope)


def _argument(matcher: Matcher, pattern: language.Pattern, place: Place, scope: Scope) -> Goals | Ways | None:
    """Match one argument with the input at a place, and note the place."""
    node, index = place
    matcher.push(matcher.reads, Read(node, index, pattern, scope))
    return _fits(matcher, pattern, node.inputs[index] if index < len(node.inputs) else None, scope)


def _rest(matcher: Matcher, first: int, node: ir.Node, scope: Scope) -> Goals | None:
    matcher.read(node, first, scope)
    return ()


def _arrangements(matcher: Matcher, pattern: language.Operator, node: ir.Node, scope: Scope) -> Goals | Ways | None:
    """Match the arguments with the node's inputs, in every order in which they may meet."""
    arguments = pattern.arguments or ()
    given, count = _given(node), len(arguments)
    if given > count and not pattern.prefix:
        matcher.miss(pattern, node, f"has {given} inputs, wanted {count}; close the arguments with ... for more")
        return None
    own = _in_order(arguments, node, range(count), scope)
    commutes = pattern.any_order or matcher.operators.has(NodeView(node), Trait.COMMUTATIVE)
    if not commutes or given < 2 or not count or (given == count == 2 and node.inputs[0] is node.inputs[1]):
        return (*own, (_rest, count, node, scope)) if given > count else own
    if given == count == 2:
        return iter((own, _in_order(arguments, node, (1, 0), scope)))
    return _any_order(matcher, arguments, node, max(given, count), scope)


def _given(node: ir.Node) -> int:
    """Return how many inputs a node has, trailing absent ones left out."""
    given = len(node.inputs)
    while given and node.inputs[given - 1] is None:
        given -= 1
    return given


def _in_order(arguments: tuple[language.Pattern, ...], node: ir.Node, order: Any, scope: Scope) -> Goals:
    return tuple((_argument, argument, (node, index), scope) for argument, index in zip(arguments, order, strict=True))


def _any_order(
    matcher: Matcher, arguments: tuple[language.Pattern, ...], node: ir.Node, inputs: int, scope: Scope
) -> Goals | None:
    """Match arguments with inputs in any order, one argument after the other."""
    places = [(node, index) for index in range(inputs)]
    rows = [[i for i, place in enumerate(places) if _possible(argument, at(place))] for argument in arguments]
    rows += [list(range(inputs)) for _ in range(inputs - len(arguments))]  # what `...` takes
    return _assigned(matcher, arguments, node, (rows, places), scope)


def _assigned(
    matcher: Matcher,
    arguments: tuple[language.Pattern, ...],
    node: ir.Node,
    given: tuple[list[list[int]], list[Place]],
    scope: Scope,
) -> Goals | None:
    """Match arguments with inputs of nodes, ``given`` as the places that each may take by number, and the places."""
    rows, places = given
    assignment = Assignment(rows)
    mates = assignment.start()
    if mates is None:
        matcher.miss(arguments[0], node, "its inputs do not fit the arguments in any order")
        return None
    return ((_choose, (arguments, assignment, mates, 0, {}), places, scope),)


def _choose(matcher: Matcher, state: tuple[Any, ...], places: list[Place], scope: Scope) -> Goals | Ways:
    """Give the next argument an input, those in the node's order first.

    Arguments that are like one another take their inputs in the node's order, and of equal inputs that are left only
    the first is tried: any other order would give the same match.
    """
    arguments, assignment, mates, number, latest = state
    if number == len(arguments):
        for index in sorted(mates[number:]):
            if at(places[index]) is not None:
                matcher.push(matcher.reads, Read(places[index][0], places[index][1], None, scope))
        return ()
    alike = tuple(assignment.possible[number]) if matcher.stands_alone(arguments[number]) else None
    taken, after = mates[:number], latest.get(alike, -1)
    firsts: dict[Subject, int] = {}
    for index in sorted(assignment.possible[number]):
        if index not in taken and index > after:
            firsts.setdefault(at(places[index]), index)

    def ways() -> Ways:
        for index in sorted(firsts.values(), key=lambda index: (alike is None and index < number, index)):
            chosen = assignment.choose(mates, number, index)
            if chosen is not None:
                now = latest if alike is None else {**latest, alike: index}
                state = (arguments, assignment, chosen, number + 1, now)
                yield (_argument, arguments[number], places[index], scope), (_choose, state, places, scope)

    return ways()


def _possible(pattern: language.Pattern, value: Subject) -> bool:
    """Whether a pattern may fit a value, as far as can be told without looking at anything else."""
    match pattern:
        case language.Absent():
            return value is None
        case language.ConstantPattern():
            return value is not None and constant_violation(pattern, value) is None
        case language.Wildcard(target=None):
            return value is not None
        case language.Named(pattern=inner):
            return _possible(inner, value)
        case language.Operator() | language.Output():
            roots = root_operators(pattern)
            producer = None if value is None else value.producer()
            return producer is not None and (roots is None or (producer.domain, producer.op_type) in roots)
        case _:
            return True


def _groupings(matcher: Matcher, pattern: language.Operator, node: ir.Node, scope: Scope, named: bool) -> Ways:
    """Yield the ways in which a nest of one associative operator fits, as it is written and in other groupings."""
    if named:
        found = _arrangements(matcher, pattern, node, scope)
        if isinstance(found, tuple):
            yield found
        elif found is not None:
            yield from found
    for grouping in groupings(pattern, node, matcher.operators, _possible, matcher.explains):
        matcher.spend(len(grouping.places))
        if any(part in scope.bound for part in grouping.inner):
            continue
        for part, stands_for in grouping.inner.items():
            matcher.bind(scope.bound, part, stands_for)
        leaves, places = grouping.leaves, grouping.places
        if grouping.commutes:
            rows = grouping.rows
            goals = _assigned(matcher, leaves, node, (rows, places), scope) if all(rows) else None
            if goals is not None:
                yield goals
        else:
            yield tuple((_argument, leaf, place, scope) for leaf, place in zip(leaves, places, strict=True))


def named_so(pattern: language.Operator, node: ir.Node) -> bool:
    """Whether the node has one of the pattern's operator names (or, for a call, composite or backend names)."""
    if node.domain != pattern.domain:
        return False
    if pattern.key:
        return not pattern.names or node.metadata_props.get(pattern.key) in pattern.names
    return node.op_type in pattern.names


def unfold(matcher: Matcher, pattern: language.Pattern, value: Subject, scope: Scope) -> Goals:
    """Match a pattern in a scope of its own, in which all its parts match afresh."""
    inner = Scope(scope.graph)
    matcher.push(matcher.scopes, inner)
    return ((_fits, pattern, value, inner),)


def _wildcard(matcher: Matcher, pattern: language.Wildcard, value: Subject, scope: Scope) -> Goals | None:
    if pattern.target is not None:
        return unfold(matcher, pattern.target, value, scope)
    if value is None:
        matcher.miss(pattern, value, "the input is absent, wanted a value")
        return None
    matcher.bind(scope.bound, pattern, value)
    return ()


def _absent(matcher: Matcher, pattern: language.Absent, value: Subject, scope: Scope) -> Goals | None:
    if value is None:
        return ()
    matcher.miss(pattern, value, f"the input is '{value.name}', wanted none")
    return None


def _constant(matcher: Matcher, pattern: language.ConstantPattern, value: Subject, scope: Scope) -> Goals | None:
    wrong = "the input is absent, wanted a constant" if value is None else constant_violation(pattern, value)
    if wrong is not None:
        matcher.miss(pattern, value, wrong)
        return None
    matcher.bind(scope.bound, pattern, value)
    return ()


def _input(matcher: Matcher, pattern: language.InputPattern, value: Subject, scope: Scope) -> Goals | None:
    if value is None or not value.is_graph_input() or (pattern.name and value.name != pattern.name):
        wanted = f"the graph's input '{pattern.name}'" if pattern.name else "an input of the graph"
        found = "the input is absent" if value is None else f"'{value.name}' is something else"
        matcher.miss(pattern, value, f"{found}, wanted {wanted}")
        return None
    matcher.bind(scope.bound, pattern, value)
    return ()


def _operator(matcher: Matcher, pattern: language.Operator, value: Subject, scope: Scope) -> Goals | Ways | None:
    return _produced(matcher, pattern, value, 0, scope)


def _output(matcher: Matcher, pattern: language.Output, value: Subject, scope: Scope) -> Goals | Ways | None:
    return _produced(matcher, pattern.node, value, pattern.index, scope)


def _produced(
    matcher: Matcher, pattern: language.Operator, value: Subject, index: int, scope: Scope
) -> Goals | Ways | None:
    node = None if value is None else value.producer()
    if node is None or value is None:
        found = "the input is absent" if value is None else f"'{value.name}' is not computed by a node"
        matcher.miss(pattern, value, f"{found}, wanted {pattern.title}")
    elif node.graph is not scope.graph:
        matcher.miss(pattern, value, f"'{value.name}' is computed in another graph, wanted {pattern.title} in this one")
    elif value.index() != index:
        matcher.miss(pattern, value, f"'{value.name}' is output {value.index()} of its node, wanted output {index}")
    else:
        return fits_node(matcher, pattern, node, scope)
    return None


def _alternative(matcher: Matcher, pattern: language.Alternative, value: Subject, scope: Scope) -> Ways:
    return (((_fits, option, value, scope), (_holds, pattern, value, scope)) for option in pattern.options)


def _both(matcher: Matcher, pattern: language.Both, value: Subject, scope: Scope) -> Goals:
    return (_fits, pattern.left, value, scope), (_fits, pattern.right, value, scope)


def _not(matcher: Matcher, pattern: language.Not, value: Subject, scope: Scope) -> Ways:
    height = len(matcher.choices)
    return iter((((_fits, pattern.pattern, value, scope), (_excluded, (pattern, height), value, scope)), ()))


def _excluded(matcher: Matcher, state: tuple[language.Not, int], value: Subject, scope: Scope) -> None:
    """Fail where an excluded pattern fits, whatever other ways there are."""
    pattern, height = state
    matcher.miss(pattern, value, "the pattern that is excluded here matches")
    del matcher.choices[height:]


def _named(matcher: Matcher, pattern: language.Named, value: Subject, scope: Scope) -> Goals | None:
    captures = scope.captures
    if pattern.name not in captures:
        matcher.bind(captures, pattern.name, value)
    elif captures[pattern.name] is not value:
        matcher.miss(pattern, value, f"'{pattern.name}' already stands for another value")
        return None
    return ((_fits, pattern.pattern, value, scope),)


def _constrained(matcher: Matcher, pattern: language.Constrained, value: Subject, scope: Scope) -> Goals:
    step: Step = _meets
    match pattern.constraint:
        case language.SameShape():
            step = _same_shape
        case ShapeIs():
            step = _has_shape
    return (_fits, pattern.pattern, value, scope), (step, pattern, value, scope)


def _meets(matcher: Matcher, pattern: language.Constrained, value: Subject, scope: Scope) -> Goals | None:
    constraint = pattern.constraint
    assert not isinstance(constraint, language.SameShape | ShapeIs)
    wrong = "the input is absent" if value is None else violation(constraint, value)
    if wrong is None:
        return ()
    matcher.miss(pattern, value, wrong)
    return None


def _has_shape(matcher: Matcher, pattern: language.Constrained, value: Subject, scope: Scope) -> Goals | None:
    constraint = pattern.constraint
    assert isinstance(constraint, ShapeIs)
    if value is None:
        matcher.miss(pattern, value, "the input is absent", "shape")
        return None
    found = fit_shape(value, constraint.shape, scope.dimensions)
    if isinstance(found, Misfit):
        matcher.miss(pattern, value, found.text, found.code)
        return None
    for name, extent in found.names.items():
        matcher.bind(scope.dimensions, name, extent)
    if found.expressions:
        _demand(matcher, pattern, value, lambda: judged(value, found, scope.dimensions))
    return ()


def _same_shape(matcher: Matcher, pattern: language.Constrained, value: Subject, scope: Scope) -> Goals:
    constraint = pattern.constraint
    assert isinstance(constraint, language.SameShape)

    def misfit() -> Misfit | None:
        other = value_of(constraint.other, scope.bound)
        if value is None or other is None:
            return Misfit(f"its shape is not that of '{other.name if other else 'nothing'}'")
        return shape_misfit(value, other)

    _demand(matcher, pattern, value, misfit)
    return ()


def _demand(matcher: Matcher, pattern: language.Pattern, value: Subject, misfit: Callable[[], Misfit | None]) -> None:
    """Demand something of shapes that is judged when the whole is matched."""

    def holds() -> bool:
        wrong = misfit()
        if wrong is not None:
            matcher.miss(pattern, value, wrong.text, wrong.code)
        return wrong is None

    matcher.push(matcher.pending, holds)


def _body(matcher: Matcher, pattern: language.Body, value: Subject, scope: Scope) -> Goals:
    return (_fits, pattern.pattern, value, scope), (_has_body, pattern, value, scope)


def _has_body(matcher: Matcher, pattern: language.Body, value: Subject, scope: Scope) -> Goals | None:
    node = None if value is None else value.producer()
    attribute = None if node is None else node.attributes.get(pattern.name)
    if attribute is None or attribute.type != ir.AttributeType.GRAPH:
        matcher.miss(pattern, value, f"has no body '{pattern.name}'")
        return None
    body = attribute.as_graph()
    if pattern.output >= len(body.outputs):
        matcher.miss(pattern, value, f"body '{pattern.name}' has {len(body.outputs)} outputs")
        return None
    inner = Scope(body, scope.bound, scope.captures, scope.dimensions)
    return ((_fits, pattern.body, body.outputs[pattern.output], inner),)


def value_of(pattern: language.Pattern, bound: Mapping[language.Pattern, Found]) -> Subject:
    """Return the value that a pattern stands for: its own binding, or that of the pattern it wraps."""
    match pattern:
        case language.Output(node=node, index=index):
            found = bound.get(node)
            return found.outputs[index] if isinstance(found, ir.Node) else None
        case language.Named(pattern=inner) | language.Constrained(pattern=inner) | language.Body(pattern=inner):
            return value_of(inner, bound)
        case language.Both(left=left, right=right):
            first = value_of(left, bound)
            return value_of(right, bound) if first is None else first
        case _:
            found = bound.get(pattern)
            return found.outputs[0] if isinstance(found, ir.Node) else found


HANDLERS: dict[type[language.Pattern], Step] = {
    language.Wildcard: _wildcard,
    language.Absent: _absent,
    language.ConstantPattern: _constant,
    language.InputPattern: _input,
    language.Operator: _operator,
    language.Output: _output,
    language.Alternative: _alternative,
    language.Optional: _alternative,
    language.Both: _both,
    language.Not: _not,
    language.Named: _named,
    language.Constrained: _constrained,
    language.Body: _body,
}
"""The handler of every kind of pattern; `graft.patterns.graph_matching` adds those that look at users."""
