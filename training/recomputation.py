"""Recomputation: values of the forward pass computed once more for the backward pass, so that less memory is taken.

Copies of nodes stand right before what first reads them, under names of their own (`RECOMPUTED`), by which no pass
takes them for the nodes that they are copies of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import onnx_ir as ir

from graft.core.graph.traversal import count_nodes
from graft.core.operators.definition.table import Trait
from graft.core.operators.products.plain_recurrence import GATES
from graft.core.passes.pipeline import PassResult, record_of
from graft.core.rewriting.node_rewrite import RECOMPUTED, has_trait, is_operator
from graft.errors import ModelError
from graft.runtime.arguments import Kind
from graft.training.editing import edited
from graft.training.kept_values import ForwardPass, needed_for
from graft.training.kernel_memory import COURSES, kernel_memory, memory_over_time, state_courses
from graft.training.segments import segment_steps

WAYS = ("none", "sqrt", "min-cut")
RECOMPUTE = Kind(
    f"one of {', '.join(map(repr, WAYS))}, or a number of bytes",
    lambda value: value in WAYS or (isinstance(value, int) and not isinstance(value, bool) and value > 0),
)
STEP = "recompute"
"""The step of the record whose note says what it came to."""
ROUNDS, CLOSE = 8, 0.97
"""Choices that are tried for a budget, and the share of it that is near enough."""


def recomputed(write: Callable[[ir.Model], ir.Model], source: ir.Model, loss: str, how: str | int) -> ir.Model:
    """Return the gradients that are written of a model, with values computed again in one of `WAYS` or to fit bytes.

    Steps of loops are gone through in segments (`segment_steps`) for ``"sqrt"``, and for bytes that need it.
    Raises ModelError for a budget that cannot be met, with the least that can.
    """
    model = sunk(write(source), loss)
    if how == "none":
        model.metadata_props.pop(COURSES, None)
        return model
    course = memory_over_time(model)
    before, nodes = max(course, default=0), count_nodes(model)
    has_steps = how != "min-cut" and any(is_operator(node, "Loop", "Scan", *GATES) for node in source.graph)
    segmented = partial(lambda: sunk(write(edited(source, segment_steps)), loss))
    model = segmented() if has_steps and how == "sqrt" else model
    forward = ForwardPass.of(model, loss)
    if isinstance(how, int):
        kept, least = _within(model, forward, how, before)
        if kept is None and has_steps:
            model = segmented()
            forward = ForwardPass.of(model, loss)
            kept, other = _within(model, forward, how, kernel_memory(model))
            least = min(least, other)
        if kept is None:
            raise ModelError(
                f"a budget of {how} bytes cannot be met: values between kernels take {least} bytes at least, "
                f"and {before} where nothing is computed again",
                budget=how,
                least=least,
            )
    else:
        kept = forward.by_root() if how == "sqrt" else forward.by_min_cut()
    found = _with_copies(model, forward, kept)
    share = forward.seconds_again(kept) / max(sum(forward.seconds.values()), 1e-12)
    more, saved = count_nodes(found), memory_over_time(found)
    state_courses(found, course, saved)
    note = (
        f"{max(saved, default=0)} bytes between kernels, {before} without; {more - nodes} nodes again, "
        f"{share:.0%} of the time of the forward pass"
    )
    record_of(found)[:] = [*record_of(model), PassResult(STEP, more > nodes, nodes, more, note)]
    return found


def sunk(model: ir.Model, loss: str) -> ir.Model:
    """Put what stands before the loss but is not needed for it before the first node that reads it.

    What the backward pass makes of values of the forward pass alone is so no longer there than it must be.
    """
    forward, graph = set(needed_for(model, loss)), model.graph
    numbers = {node: number for number, node in enumerate(graph)}
    places, last = dict(numbers), max((numbers[node] for node in forward), default=0)
    for node in reversed(numbers):
        readers = [use.node for one in node.outputs for use in one.uses()]
        is_early = node not in forward and numbers[node] < last
        is_moved = is_early and not any(one.is_graph_output() for one in node.outputs)
        if is_moved and readers and all(reader in places for reader in readers):
            places[node] = min(places[reader] for reader in readers)
    nodes = sorted(numbers, key=lambda node: (places[node], numbers[node]))
    graph.remove(nodes)
    graph.extend(nodes)
    return model


def _within(model: ir.Model, forward: ForwardPass, budget: int, before: int) -> tuple[frozenset[ir.Value] | None, int]:
    """Return what the cheapest choice found keeps whose memory is within a budget, and the least memory of all.

    Choices count what is kept; gradients and what is between come on top, so the bytes for what is kept are halved in.
    """
    if before <= budget:
        return frozenset(forward.read), before
    low, high, least, best = 0, forward.bytes_read, before, None
    for _ in range(ROUNDS):
        middle = (low + high) // 2
        kept = forward.cheapest(middle)
        peak = None if kept is None else kernel_memory(_with_copies(model, forward, kept))
        least = least if peak is None else min(least, peak)
        if peak is None:
            low = middle
        elif peak > budget:
            high = middle
        else:
            low, best = middle, kept
            if peak > CLOSE * budget:
                break
    return best, least


def _with_copies(model: ir.Model, forward: ForwardPass, kept: frozenset[ir.Value]) -> ir.Model:
    """Return a copy of a model whose backward pass reads copies of what is not kept."""
    found = model.clone()
    again = {node.name for node in forward.computed_again(kept, forward.read)}
    forward_nodes = {node.name for node in forward.nodes}
    wanted = {value.name for value in forward.read - kept}
    copies: dict[ir.Value, ir.Value] = {}

    def copy_of(value: ir.Value, before: ir.Node) -> ir.Value:
        """Return the copy of a value, made with what it needs before a node where there is none yet."""
        stack = [value]
        while stack:
            node = stack[-1].producer()
            if stack[-1] in copies or node is None or node.name not in again or stack[-1].name not in computed:
                stack.pop()
                continue
            missing = [one for one in node.inputs if one is not None and one.name in computed and one not in copies]
            if missing:
                stack += missing
                continue
            copies.update(_copied(node, copies, before))
        return copies.get(value, value)

    computed = {one.name for node in forward.nodes if node.name in again for one in node.outputs} - {
        one.name for one in kept | forward.free
    }
    for node in list(found.graph):
        if node.name in forward_nodes or has_trait(node, Trait.SHAPE_ONLY):
            continue
        for place, value in enumerate(node.inputs):
            if value is not None and value.name in wanted:
                node.replace_input_with(place, copy_of(value, node))
    return found


def _copied(node: ir.Node, copies: Mapping[ir.Value, ir.Value], before: ir.Node) -> dict[ir.Value, ir.Value]:
    """Put a copy of a node before another; return the copies of its outputs by these."""
    outputs = [
        ir.Value(name=f"{one.name}{RECOMPUTED}" if one.name else one.name, type=one.type, shape=one.shape)
        for one in node.outputs
    ]
    inputs = [copies.get(one, one) if one is not None else None for one in node.inputs]
    name = f"{node.name}{RECOMPUTED}"
    graph = before.graph
    assert graph is not None, before
    graph.insert_before(
        before, ir.Node(node.domain, node.op_type, inputs, node.attributes.values(), outputs=outputs, name=name)
    )
    return dict(zip(node.outputs, outputs, strict=True))
