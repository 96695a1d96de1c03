"""The memory that a model's values will take, known before code is made: of the kernels that fusion leaves.

A value inside a kernel takes none. What the memory planner finds later is this bound, or a little more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from graft.compiler.driver import prepare
from graft.compiler.memory.lifetimes import Lifetime, live_bytes
from graft.core.graph.view import NodeView
from graft.core.machine.target import host_target
from graft.core.operators.all import OPERATORS
from graft.core.shapes.sample_inputs import typical_numbers
from graft.errors import ModelError
from graft.partition.costs import value_bytes
from graft.partition.graph import bodies, captures
from graft.plugins.codegen.grouping.fusion import fuse
from graft.plugins.codegen.grouping.horizontal_fusion import join_horizontally
from graft.runtime.system.json_text import parse_json

COURSES = "graft.memory"
"""The key of a model's metadata for the courses of its memory, without recomputation and with it."""
MOST_MOMENTS = 1 << 10
"""Numbers of a course that are kept: of more kernels, neighbours share the largest."""


def kernel_memory(model: ir.Model) -> int:
    """Return the largest sum of bytes of values between kernels that live at one time; symbols count typically."""
    return max(memory_over_time(model), default=0)


def state_courses(model: ir.Model, without: Sequence[int], with_it: Sequence[int]) -> None:
    """Let a model say how its memory goes over time without recomputation, and with it."""
    if not without or not with_it:
        return
    share = -(-max(len(without), len(with_it)) // MOST_MOMENTS)
    thinned = [[max(one[at : at + share]) for at in range(0, len(one), share)] for one in (without, with_it)]
    model.metadata_props[COURSES] = json.dumps(thinned)


def courses_of(model: ir.Model) -> tuple[list[int], list[int]] | None:
    """Return what `state_courses` wrote; None where nothing did. Raises ModelError for other text."""
    text = model.metadata_props.get(COURSES)
    if text is None:
        return None
    try:
        without, with_it = ([max(int(number), 1) for number in one] for one in parse_json(text))
        if not without or not with_it:
            raise ValueError("one is empty")
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"the model's metadata '{COURSES}' is no two lists of bytes: {error}", value=COURSES
        ) from error
    return without, with_it


def memory_over_time(model: ir.Model) -> list[int]:
    """Return, by kernel in the order in which they run, the bytes of values between kernels that live then.

    Bodies of control flow have room of their own all the time.
    """
    prepared = prepare(model)
    return _over_time(prepared.graph, typical_numbers(prepared))


def _over_time(graph: ir.Graph, typical: Mapping[str, int]) -> list[int]:
    inner = sum(max(_over_time(body, typical), default=0) for node in graph for _, body in bodies(node))
    outputs = set(graph.outputs)
    viewed: dict[ir.Value, ir.Value] = {}
    first: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}

    def owner(value: ir.Value) -> ir.Value:
        while value in viewed:
            value = viewed[value]
        return value

    groups = fuse([NodeView(node) for node in graph], outputs, OPERATORS)
    for step, group in enumerate(join_horizontally(groups, host_target(), outputs)):
        is_view = group.is_view or group.slices is not None
        parts = (group, *group.beside)
        for node in (node for part in parts for node in (*part.before, *part.nodes)):
            source = node.node.inputs[0] if node.node.inputs else None
            if is_view and source is not None:
                viewed.update(dict.fromkeys(node.node.outputs, source))
            read = {owner(value) for value in (*node.node.inputs, *captures(node.node)) if value is not None}
            last.update(dict.fromkeys(read & first.keys(), step))
        if not is_view:
            made = [value for part in parts for value in part.tail.node.outputs if value.name]
            first.update(dict.fromkeys(made, step))
            last.update(dict.fromkeys(made, step))
    given = {owner(value) for value in outputs}
    live = live_bytes([
        Lifetime(value_bytes(value, typical), step, last[value]) for value, step in first.items() if value not in given
    ])  # fmt: skip
    return [one + inner for one in live or [0]]
