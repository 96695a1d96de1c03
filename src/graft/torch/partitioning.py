"""The parts of an FX graph that are compiled: without circles, as large as can be, none that is not worth its call.

A node's level counts how often the way to it changes between what is compiled and what stays in PyTorch, at most. All
compiled nodes of a level are one part: levels never fall along an edge, so there is no circle, and no way through the
graph meets fewer parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.fx import Graph, GraphModule, Node

from graft.torch.aten.table import VIEWS
from graft.torch.conversion import fake, is_getitem, is_number

LEAST = 3
"""Operators that compute, below which a part of a mixed graph is not worth the two crossings; one product is."""
PRODUCTS = frozenset({
    torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default, torch.ops.aten.convolution.default,
})  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Nodes that are compiled together, in order, and those of them that others read."""

    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]


def before_drawing(graph: Graph) -> dict[Node, tuple[Node, ...]]:
    """Return, for each node that draws random numbers but the first, the node that draws before it."""
    drawing = [
        node for node in graph.nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    ]  # fmt: skip
    return {node: (before,) for before, node in pairwise(drawing)}


def put_in_order(graph: Graph, drawn: Mapping[Node, tuple[Node, ...]]) -> None:
    """Move nodes behind what they read, and random draws behind each other; all else stays in its order."""
    done: set[Node] = set()
    output = graph.output_node()
    for first in [node for node in graph.nodes if node is not output]:
        waiting = [first]
        while waiting:
            node = waiting[-1]
            missing = [one for one in (*node.all_input_nodes, *drawn.get(node, ())) if one not in done]
            waiting += reversed(missing)
            if not missing:
                waiting.pop()
                if node not in done:
                    done.add(node)
                    output.prepend(node)


def parts_of(graph: GraphModule, refused: Mapping[Node, str]) -> list[Part]:
    """Return the parts of a graph whose nodes are all but the refused ones; views that only others read are left out.

    ``refused`` has every node that is called and stays in PyTorch, with the reason.
    """
    _copy_views_read_outside(graph, _levels(graph, refused))
    levels = _levels(graph, refused)
    by_level: dict[int, list[Node]] = {}
    for node, level in levels.items():
        by_level.setdefault(level, []).append(node)
    found = [_part(nodes) for _, nodes in sorted(by_level.items())]
    kept = [part for part in found if part.outputs]
    if len(kept) > 1 or any(
        node.op == "call_function" and node not in levels and not is_number(node) for node in graph.graph.nodes
    ):
        kept = [part for part in kept if _is_worth_it(part, bool(refused))]
    return kept


def _part(nodes: list[Node]) -> Part:
    """Return a part without what nobody reads."""
    inside = set(nodes)
    outputs = tuple(
        node for node in nodes
        if isinstance(fake(node), torch.Tensor) and any(user not in inside for user in node.users)
    )  # fmt: skip
    needed: set[Node] = set()
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [one for one in node.all_input_nodes if one in inside]
    return Part(tuple(node for node in nodes if node in needed), outputs)


def _is_worth_it(part: Part, is_mixed: bool) -> bool:
    computing = [one for one in part.nodes if one.target not in VIEWS and not is_getitem(one)]
    if not is_mixed:
        return bool(computing)
    return len(computing) >= LEAST or any(one.target in PRODUCTS for one in computing)


def _levels(graph: GraphModule, refused: Mapping[Node, str]) -> dict[Node, int]:
    """Return the levels of the nodes that are compiled: even ones; odd ones are PyTorch's.

    What only parts behind read, such as dequantised weights, is in the first of them. A view is where its source is,
    and outside where only what is outside reads it. What draws random numbers waits for what drew before it.
    """
    level: dict[Node, int] = {}
    drawn = before_drawing(graph.graph)
    for node in graph.graph.nodes:
        if node.op != "call_function":
            level[node] = 0
            continue
        before = max((level[one] for one in (*node.all_input_nodes, *drawn.get(node, ()))), default=0)
        stays = node in refused
        follows = (node.target in VIEWS and not stays) or is_getitem(node) or is_number(node)
        level[node] = before if follows else before + int(before % 2 != int(stays))
    found = {
        node: number for node, number in level.items()
        if node.op == "call_function" and number % 2 == 0 and node not in refused and not is_number(node)
    }  # fmt: skip
    for node in reversed(list(graph.graph.nodes)):
        readers = [found.get(user, 0) for user in node.users]
        if node in found and not is_getitem(node) and readers and min(readers) > found[node]:
            found[node] = min(readers)
        if node in found and node.target in VIEWS and all(found.get(user) != found[node] for user in node.users):
            del found[node]
        if node in found and is_getitem(node) and node.args[0] not in found:
            del found[node]
    return found


def _copy_views_read_outside(graph: GraphModule, levels: Mapping[Node, int]) -> None:
    """Give who reads a view outside of its part a view of PyTorch's own: it costs nothing, and shares the memory."""
    for node in reversed(list(graph.graph.nodes)):
        if node not in levels or node.target not in VIEWS:
            continue
        outside = [user for user in node.users if levels.get(user) != levels[node]]
        if outside and len(outside) < len(node.users):
            with graph.graph.inserting_after(node):
                copy = graph.graph.node_copy(node)
            copy.meta = dict(node.meta)
            for user in outside:
                user.replace_input_with(node, copy)
