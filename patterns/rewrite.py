"""Rewriting: matches replaced by new nodes, to a fixed point or once.

Roots are tried from the outputs of a graph towards its inputs, so of an optional or repeated part the longest form is
taken that there is; whatever a match holds is gone when its smaller forms would come up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

from graft.core.graph.traversal import all_nodes
from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable
from graft.core.shapes.inference import infer_shapes
from graft.errors import GraftError, PatternError
from graft.patterns.checks.validate import validate
from graft.patterns.definitions import Definition, definitions_of, import_domains, keep
from graft.patterns.graph_matching import roots_of
from graft.patterns.infer import Definitions, infer_types
from graft.patterns.language import Pattern
from graft.patterns.match import Match
from graft.patterns.matcher import value_of
from graft.patterns.matching import MatchCheck, accepts, matches
from graft.patterns.take_over import agree, is_safe, take_over
from graft.patterns.walk import root_operators
from graft.runtime.foreign import kind_of, said

PASS_LIMIT = 100
"""Passes over the graph after which rules are taken to undo each other."""


class NewNodes:
    """Makes the nodes of a replacement: ``op("Gemm", x, w, transB=1)`` returns the first output.

    ``op("Silu", x, domain="com.acme")`` is an operator of a vendor's, or a call of the model's own function.
    """

    def __init__(self) -> None:
        self._tape = tape.Tape()

    def __call__(
        self,
        op_type: str,
        *inputs: ir.Value | ValueView | None,
        domain: str = "",
        version: int | None = None,
        **attributes: object,
    ) -> ir.Value:
        """Return the output of a new node, None being an absent input.

        The model imports ``version`` of another domain than ONNX's, or else what its schema says, or 1.
        """
        return self.several(op_type, 1, *inputs, domain=domain, version=version, **attributes)[0]

    def several(
        self,
        op_type: str,
        outputs: int,
        *inputs: ir.Value | ValueView | None,
        domain: str = "",
        version: int | None = None,
        **attributes: object,
    ) -> Sequence[ir.Value]:
        """Return the outputs of a new node with several."""
        values = [value.value if isinstance(value, ValueView) else value for value in inputs]
        given: dict[str, Any] = dict(attributes)
        domain = "" if domain == "ai.onnx" else domain
        return self._tape.op_multi_out(op_type, values, given, num_outputs=outputs, domain=domain, version=version)

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
    output (one value per root for a pattern with several roots), or None to leave this match alone. What is built may
    read the match's own values. With ``once`` the rule runs over the graph a single time and does not see what it made.
    ``definitions`` are those of operators that ONNX does not have: functions, which the model keeps, or schemas.
    """

    name: str
    pattern: Pattern
    build: Build
    check: MatchCheck | None = None
    once: bool = False
    definitions: Sequence[Definition] = ()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """How often every rule was applied, and the passes that it took."""

    applied: Counter[str] = field(default_factory=Counter)
    passes: int = 0

    def __bool__(self) -> bool:
        return bool(self.applied)


def rewrite(
    model: ir.Model | ir.Graph | ir.Function,
    rules: Sequence[Rule],
    operators: OperatorTable = OPERATORS,
    limit: int = PASS_LIMIT,
) -> Rewritten:
    """Apply rules to a model's graph and the bodies in it, in place, in their order, until none applies.

    Nodes without use are removed; the graph's outputs keep their names. Types are inferred first where values have
    none, and new values get the types that ONNX infers. Rules that bring functions need the model, not its graph alone.

    Raises PatternError, with the rules that still apply, if that takes more than ``limit`` passes; for a rule that
    builds a wrong node, a value of another type or shape than it replaces, or a cycle, or whose builder raises.
    """
    for rule in rules:
        validate(rule.pattern)
    top = model if isinstance(model, ir.Graph) else model.graph
    functions = model.functions if isinstance(model, ir.Model) else {}
    _infer_untyped(top, functions)
    applied: Counter[str] = Counter()
    passes = 0
    is_model = isinstance(model, ir.Model)
    left = [(rule, definitions_of(rule.name, rule.definitions, functions, is_model)) for rule in rules]
    while left:
        passes += 1
        changed: Counter[str] = Counter()
        for rule, definitions in left:
            count = _apply(top, rule, operators, definitions)
            if count:
                changed[rule.name] += count
                keep(definitions, functions)
        applied.update(changed)
        left = [(rule, definitions) for rule, definitions in left if not rule.once]
        if not changed:
            break
        if passes >= limit:
            names = ", ".join(f"'{name}'" for name in changed)
            raise PatternError(
                f"after {limit} passes the rules {names} still apply; they undo each other, or make what they match",
                rules=tuple(changed),
            )
    return Rewritten(applied, passes)


def _infer_untyped(top: ir.Graph, functions: MutableMapping[Any, ir.Function]) -> None:
    """Infer a graph in which a value has no type, if all its inputs have one."""
    untyped = any(value.type is None for node in all_nodes(top) for value in node.outputs if value.name)
    if untyped and all(value.type is not None for value in top.inputs):
        infer_shapes(ir.Model(top, ir_version=10, functions=list(functions.values())))


def _apply(top: ir.Graph, rule: Rule, operators: OperatorTable, definitions: Definitions) -> int:
    """Apply a rule once at every node that the graphs have now; return how often it applied."""
    roots = root_operators(rule.pattern)
    count = 0
    made: set[ir.Node] = set()
    for graph in list(_graphs(top)):
        before = count
        for node in reversed(list(graph)):
            if node.graph is None or (roots is not None and (node.domain, node.op_type) not in roots):
                continue
            for match in matches(rule.pattern, node, operators):
                if rule.once and not made.isdisjoint(match.members):
                    continue
                if accepts(rule.check, match) and (new := _replace(top, rule, match, definitions)) is not None:
                    made.update(new)
                    count += 1
                    break
        if count > before:
            _require_order(graph, rule)
    return count


def _graphs(top: ir.Graph) -> Iterator[ir.Graph]:
    """Yield a graph and the bodies of its nodes."""
    waiting = [top]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    waiting.append(attribute.as_graph())
                elif attribute.type == ir.AttributeType.GRAPHS:
                    waiting.extend(attribute.as_graphs())


def _built(rule: Rule, match: Match, op: NewNodes) -> list[ir.Value] | None:
    """Return what a rule builds; what its builder raises names rule and node."""
    where = f"rule '{rule.name}' at {match.root.where}"
    try:
        built = rule.build(match, op)
    except GraftError as error:
        raise PatternError(f"{where}: {error}", rule=rule.name) from error
    except Exception as error:
        raise PatternError(f"{where}: its builder raised {kind_of(error)}: {said(error)}", rule=rule.name) from error
    if built is None:
        return None
    given = [built] if isinstance(built, ir.Value | ValueView) else built
    values = [value.value if isinstance(value, ValueView) else value for value in given]
    wrong = next((value for value in values if not isinstance(value, ir.Value)), None)
    if wrong is not None:
        raise PatternError(f"{where}: it built {wrong!r}; return what op(...) returns", rule=rule.name)
    return values


def _replace(top: ir.Graph, rule: Rule, match: Match, definitions: Definitions) -> Sequence[ir.Node] | None:
    """Put what the rule builds in the place of a match; return the new nodes, None if that changed nothing."""
    op = NewNodes()
    new = _built(rule, match, op)
    if new is None:
        return None
    members = roots_of(rule.pattern)
    old = [value for part in members if (value := value_of(part, match.bindings)) is not None]
    old = old or [match.root.node.outputs[0]]
    if len(old) != len(new):
        raise PatternError(
            f"rule '{rule.name}' built {len(new)} values at {match.root.where}, its pattern has {len(old)} outputs",
            rule=rule.name,
        )
    nodes = list(op.nodes)
    graph = match.root.node.graph
    assert isinstance(graph, ir.Graph)
    if all(before is after for before, after in zip(old, new, strict=True)):
        return None
    if len(old) > 1 and not is_safe(old, nodes):
        return None  # something between the outputs of the match would read what it is read by
    graph.insert_after(_last(graph, match) if len(old) > 1 else match.root.node, nodes)
    try:
        import_domains(top, nodes, definitions)
        infer_types(nodes, top.opset_imports, definitions)
        for before, after in zip(old, new, strict=True):
            agree(before, after)
    except PatternError as error:
        _remove_unused(nodes)
        raise PatternError(f"rule '{rule.name}' at {match.root.where}: {error}", rule=rule.name) from error
    pairs = [pair for pair in zip(old, new, strict=True) if pair[0] is not pair[1]]
    changed = [take_over(top, before, after, nodes) for before, after in pairs]
    _remove_unused([*match.sorted_members(), *nodes])
    return nodes if any(changed) else None


def _last(graph: ir.Graph, match: Match) -> ir.Node:
    return [node for node in graph if node in match.members][-1]


def _remove_unused(nodes: Sequence[ir.Node]) -> None:
    """Remove nodes, producers before consumers, that nothing reads any more."""
    for node in reversed(nodes):
        unused = all(not output.uses() and not output.is_graph_output() for output in node.outputs)
        if node.graph is not None and unused:
            node.graph.remove(node, safe=True)


def _require_order(graph: ir.Graph, rule: Rule) -> None:
    """Sort a graph whose nodes stand before their producers; raise PatternError if there is a cycle."""
    seen: set[ir.Node] = set()
    for node in graph:
        producers = (value.producer() for value in node.inputs if value is not None)
        if any(one is not None and one.graph is graph and one not in seen for one in producers):
            try:
                graph.sort()
            except ValueError as error:
                raise PatternError(
                    f"rule '{rule.name}' makes {NodeView(node).where} depend on itself; "
                    "build from the operands of the match",
                    rule=rule.name,
                ) from error
            return
        seen.add(node)
