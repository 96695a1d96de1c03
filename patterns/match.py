"""A match: what a pattern found."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.errors import PatternError
from graft.patterns.language import Named, Pattern
from graft.patterns.operands import Operand
from graft.patterns.walk import walk
from graft.runtime.extents import Extent


@dataclass(frozen=True, slots=True)
class Match:
    """The nodes and values that a pattern matched: ``match["w"]`` is the value captured as ``w``."""

    pattern: Pattern
    root: NodeView
    """The node whose output the pattern describes: the last one of the group."""
    bindings: Mapping[Pattern, ir.Node | ir.Value | None]
    """Pattern objects with what they matched; None for an optional input that is absent."""
    captures: Mapping[str, ir.Value | None]
    members: frozenset[ir.Node]
    """The nodes of the group."""
    repeated: Mapping[str, Sequence[ir.Value]]
    """All values captured under a name: a recursive pattern may capture several."""
    operands: tuple[Operand, ...] = ()
    """What the group reads from outside, in the order in which the pattern is written."""
    dimensions: Mapping[str, Extent] = field(default_factory=dict)
    """What the names in the pattern's shapes stand for: numbers, or expressions over the model's symbols."""

    def __getitem__(self, name: str) -> ValueView:
        """Return a captured value; raise PatternError if the match did not bind it."""
        value = self.get(name)
        if value is None:
            raise PatternError(self._unbound(name), name=name)
        return value

    def get(self, name: str) -> ValueView | None:
        """Return a captured value, None where an optional part or input is not there.

        Raise PatternError for a name that the pattern does not have.
        """
        value = self.captures.get(name)
        if value is None and name not in self.captures and name not in _names(self.pattern):
            raise PatternError(self._unbound(name), name=name)
        return None if value is None else ValueView(value)

    def __contains__(self, name: str) -> bool:
        return self.captures.get(name) is not None

    def all(self, name: str) -> tuple[ValueView, ...]:
        """Return all values captured under a name, outermost first."""
        self.get(name)
        return tuple(ValueView(value) for value in self.repeated.get(name, ()))

    def node(self, name: str) -> NodeView:
        """Return the node that produces a captured value; raise PatternError if nothing does."""
        producer = self[name].value.producer()
        if producer is None:
            raise PatternError(f"'{name}' is an input or a constant here: no node produces it", name=name)
        return NodeView(producer)

    def of(self, pattern: Pattern) -> ValueView | NodeView | None:
        """Return what a pattern object matched: a node for an operator's pattern, a value for any other."""
        found = self.bindings.get(pattern)
        if found is None:
            return None
        return NodeView(found) if isinstance(found, ir.Node) else ValueView(found)

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes of the group, producers before consumers."""
        return tuple(NodeView(node) for node in self.sorted_members())

    def sorted_members(self) -> list[ir.Node]:
        """Return the nodes of the group, producers before consumers."""
        return sort_nodes(self.members)

    def __str__(self) -> str:
        return " -> ".join(node.where for node in self.nodes)

    def _unbound(self, name: str) -> str:
        known = sorted(_names(self.pattern))
        if name in known:
            return (
                f"'{name}' is not bound in this match of {self.root.where}; ask match.get('{name}') for optional parts"
            )
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"it captures {', '.join(known) or 'nothing'}"
        return f"the pattern captures no '{name}'; {hint}"


def sort_nodes(nodes: Collection[ir.Node]) -> list[ir.Node]:
    """Return nodes with producers before consumers; the order depends on the graph alone."""
    done: set[ir.Node] = set()
    result: list[ir.Node] = []
    inner = {value.producer() for node in nodes for value in node.inputs if value is not None}
    sinks = sorted((node for node in nodes if node not in inner), key=lambda node: node.name or "")
    stack = [(node, False) for node in reversed(sinks)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            result.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            for value in reversed(node.inputs):
                producer = None if value is None else value.producer()
                if producer is not None and producer in nodes and producer not in done:
                    stack.append((producer, False))
    return result


def _names(pattern: Pattern) -> set[str]:
    return {part.name for part in walk(pattern) if isinstance(part, Named)}
