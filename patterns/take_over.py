"""One value in the place of another: its uses, its name as an output of the graph, its type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from graft.core.graph.traversal import all_nodes
from graft.core.graph.view import ValueView
from graft.errors import PatternError
from graft.patterns.value_checks import shape_text


def take_over(top: ir.Graph, before: ir.Value, after: ir.Value, made: Sequence[ir.Node]) -> bool:
    """Let ``after`` stand wherever ``before`` did, except in the nodes just made; return whether anything changed.

    An output of a graph keeps its name: ``after`` takes it, or an Identity does where ``after`` is an input, a
    constant or an output itself. The two have agreed (`agree`).
    """
    graph = before.graph
    is_output = before.is_graph_output()
    if is_output and not _can_be_renamed(after, graph):
        if _is_identity(before, after):
            return False
        root = before.producer()
        assert root is not None
        identity = ir.Node("", "Identity", [after])
        root.graph.insert_after(_later(root, made), identity)  # type: ignore[union-attr]
        made = [*made, identity]
        replaced, after = after, identity.outputs[0]
        after.type, after.shape = replaced.type, replaced.shape
    skipped = set(_with_bodies(made))
    if is_output:
        assert isinstance(graph, ir.Graph)
        name = before.name
        for place, output in enumerate(graph.outputs):
            if output is before:
                graph.outputs[place] = after
        before.name = _free_name(f"{name}_replaced", top)
        after.name = name
    for node, index in before.uses():
        if node not in skipped:
            node.replace_input_with(index, after)
    return True


def is_safe(old: Sequence[ir.Value], made: Sequence[ir.Node]) -> bool:
    """Whether nothing that reads one of several values leads to what their replacements read: no cycle comes up."""
    inside = set(made)
    wanted = {value.producer() for node in made for value in node.inputs if value is not None} - inside - {None}
    waiting = [use.node for value in old for use in value.uses() if use.node not in inside]
    seen: set[ir.Node] = set()
    while waiting:
        node = waiting.pop()
        if node in wanted:
            return False
        if node not in seen:
            seen.add(node)
            waiting.extend(use.node for value in node.outputs for use in value.uses() if use.node not in inside)
    return True


def agree(before: ir.Value, after: ir.Value) -> None:
    """Give ``after`` the type and shape of ``before`` where it has none; raise PatternError if they differ."""
    if after.type is None:
        after.type = before.type
    if after.shape is None and before.shape is not None:
        after.shape = before.shape.copy()
    old, new = ValueView(before), ValueView(after)
    same_type = before.type is None or before.type == after.type
    shapes = zip(old.shape or (), new.shape or (), strict=False)
    differ = [pair for pair in shapes if all(isinstance(one, int) for one in pair) and pair[0] != pair[1]]
    if not same_type or differ or (old.rank is not None and old.rank != new.rank):
        raise PatternError(
            f"it replaces '{old.name}', {old.dtype}{shape_text(old.shape)}, by {new.dtype}{shape_text(new.shape)}; "
            "build a value of the same type and shape, or return None for this match",
            value=old.name,
        )
    if before.shape is not None and after.shape is not None and not after.shape.is_static() and old.static_shape:
        after.shape = before.shape.copy()


def _can_be_renamed(value: ir.Value, graph: ir.Graph | ir.Function | None) -> bool:
    producer = value.producer()
    return producer is not None and producer.graph is graph and not value.is_graph_output()


def _is_identity(before: ir.Value, after: ir.Value) -> bool:
    """Whether a value is an output by an Identity already: another one would say the same."""
    node = before.producer()
    return node is not None and node.op_type == "Identity" and not node.domain and node.inputs[0] is after


def _later(root: ir.Node, made: Sequence[ir.Node]) -> ir.Node:
    return made[-1] if made else root


def _with_bodies(nodes: Sequence[ir.Node]) -> Iterator[ir.Node]:
    """Yield nodes and the nodes of the bodies in them."""
    for node in nodes:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from all_nodes(attribute.as_graph())
            elif attribute.type == ir.AttributeType.GRAPHS:
                for body in attribute.as_graphs():
                    yield from all_nodes(body)


def _free_name(preferred: str, top: ir.Graph) -> str:
    """Return a name that no value of a graph or of the bodies in it has."""
    taken = {value.name for value in (*top.inputs, *top.initializers.values())}
    for node in all_nodes(top):
        taken.update(value.name for value in (*node.outputs, *node.inputs) if value is not None)
    name, count = preferred, 1
    while name in taken:
        count += 1
        name = f"{preferred}_{count}"
    return name
