"""Derivatives of If and Scan: bodies that compute their nodes again, and then the gradients of what they read.

The gradient of a Scan is a Scan from the last step to the first, over the states before each step, which the node
gives from now on as well. What bodies read from outside has its gradients summed in states of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import TypeProto, helper

from graft.core.graph.renaming import renamed
from graft.core.operators.definition.adjoint import Adjoint
from graft.core.operators.definition.function_body import Body


def _attribute(f: Adjoint, name: str) -> onnx.AttributeProto:
    found: onnx.AttributeProto = next(one for one in f.node.attribute if one.name == name)
    return found


def _again(f: Adjoint, graph: onnx.GraphProto, names: dict[str, str]) -> Body:
    """Return the nodes of a body in names of their own; ``names`` gives those of its inputs, and learns the others."""
    inner = Body(f.node, f.types, f.data, f.fresh)
    stem = f.node.name or f.node.output[0]
    for tensor in graph.initializer:
        names[tensor.name] = inner.fresh(f"{stem}/{tensor.name}")
        inner.add(helper.make_node("Constant", [], [names[tensor.name]], value=tensor))
    for node in graph.node:
        inner.add(renamed(node, names, {}, stem, f.fresh))
    return inner


def _infos(f: Adjoint, names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    return [helper.make_value_info(name, f.types[name]) for name in names]


def _graph(f: Adjoint, inner: Body, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.GraphProto:
    stem = f.node.name or f.node.output[0]
    return helper.make_graph(inner.nodes, f"{stem}/gradient", _infos(f, inputs), _infos(f, outputs))


def _or_zeros(inner: Body, found: Mapping[str, str], name: str) -> str:
    """Return a gradient under a name of its own: zeros where there is none."""
    if name in found:
        gradient = inner("Identity", found[name])
    else:
        gradient = inner("Expand", inner.like(0.0, name), inner("Shape", name))
    inner.types[gradient] = inner.types[name]
    return gradient


def branches(f: Adjoint) -> list[str]:
    """The gradients of what the branch that was taken reads."""
    asked = [name for name in f.captured if f.is_varied(name)]
    graphs = {}
    for branch in ("then_branch", "else_branch"):
        graph = _attribute(f, branch).g
        names = {"": ""}
        inner = _again(f, graph, names)
        upstream = {
            names.get(value.name, value.name): f.upstream(number)
            for number, value in enumerate(graph.output)
            if f.has_gradient(number)
        }
        found = f.pull_into(inner, inner.nodes, upstream, asked)
        graphs[branch] = _graph(f, inner, [], [_or_zeros(inner, found, name) for name in asked])
    gradients = dict(zip(asked, f.several(len(asked), "If", f.input(0), **graphs), strict=True))
    for name, gradient in gradients.items():
        f.typed(gradient, name)
    return ["", *(gradients.get(name, "") for name in f.captured)]


# ---- Scan ---------------------------------------------------------------------------------------------------------


def _slice_type(kind: TypeProto, axis: int) -> TypeProto:
    """Return the type of a slice."""
    result = TypeProto()
    result.CopyFrom(kind)
    del result.tensor_type.shape.dim[axis % len(kind.tensor_type.shape.dim)]
    return result


def _stacked_type(kind: TypeProto, count: onnx.TensorShapeProto.Dimension) -> TypeProto:
    """Return the type of so many slices along a new first axis."""
    result = TypeProto()
    result.tensor_type.elem_type = kind.tensor_type.elem_type
    for one in (count, *kind.tensor_type.shape.dim):
        result.tensor_type.shape.dim.add().CopyFrom(one)
    return result


def _states_before(f: Adjoint, graph: onnx.GraphProto, states: int, axes: Sequence[int]) -> list[str]:
    """Let the node give the states before each step; return them, stacked."""
    count = f.types[f.input(states)].tensor_type.shape.dim[axes[0]]
    stacked = []
    for value, name in zip(graph.input[:states], f.inputs, strict=False):
        copy, output = f.fresh(f"{value.name}/before"), f.fresh(f"{name}/before")
        graph.node.append(helper.make_node("Identity", [value.name], [copy], copy))
        graph.output.append(helper.make_value_info(copy, f.types[name]))
        f.node.output.append(output)
        f.types[output] = _stacked_type(f.types[name], count)
        stacked.append(output)
    for attribute in f.node.attribute:
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            attribute.ints.extend([0] * states)
    return stacked


def scan(f: Adjoint) -> list[str]:
    """A Scan in the other direction: see the module."""
    graph, slices = _attribute(f, "body").g, f.attribute("num_scan_inputs")
    states, captured = len(f.inputs) - slices, f.captured
    f.require(slices > 0, "of a Scan over nothing no derivative is known")
    f.require(all(name in f.types for name in f.inputs), "its derivative needs the types of its inputs")
    results = len(graph.output) - states
    axes = f.attribute("scan_input_axes") or [0] * slices
    directions = f.attribute("scan_input_directions") or [0] * slices
    result_axes = f.attribute("scan_output_axes") or [0] * results
    result_directions = f.attribute("scan_output_directions") or [0] * results
    asked = [name for name in captured if f.is_varied(name)]
    collected = [number for number in range(results) if f.has_gradient(states + number)]
    own = list(graph.node), list(graph.output)
    before = _states_before(f, graph, states, axes)

    names = {"": ""} | {value.name: f.fresh(value.name) for value in graph.input}
    inputs = [names[value.name] for value in graph.input]
    for number, name in enumerate(inputs):
        kind = f.types[f.input(number)]
        f.types[name] = kind if number < states else _slice_type(kind, axes[number - states])
    given = onnx.GraphProto(node=own[0], initializer=graph.initializer)
    inner = _again(f, given, names)
    ends = [names.get(value.name, value.name) for value in own[1]]
    carried, sums, slices_in = [], [], []
    upstream: dict[str, str] = {}

    def join(end: str, gradient: str) -> None:
        upstream[end] = inner("Add", upstream[end], gradient) if end in upstream else gradient

    for number in range(states):
        carried.append(name := f.fresh(f"{inputs[number]}/gradient"))
        f.typed(name, f.input(number))
        if f.is_varied(f.input(number)) or f.types[name].tensor_type.elem_type in (1, 10, 11, 16):
            join(ends[number], name)
    for number in collected:
        slices_in.append(name := f.fresh(f"{ends[states + number]}/gradient"))
        f.typed(name, ends[states + number])
        join(ends[states + number], name)
    for name in asked:
        sums.append(f.typed(f.fresh(f"{name}/sum"), name))
    nodes = list(inner.nodes)
    found = f.pull_into(inner, nodes, upstream, [*inputs, *asked])
    after = [_or_zeros(inner, found, name) for name in inputs[:states]]
    totals = [
        f.typed(inner("Add", total, found[name]) if name in found else inner("Identity", total), name)
        for total, name in zip(sums, asked, strict=True)
    ]
    taken = [number for number in range(slices) if f.is_varied(f.input(states + number))]
    parts = [_or_zeros(inner, found, inputs[states + number]) for number in taken]
    body = _graph(f, inner, [*carried, *sums, *inputs, *slices_in], [*after, *totals, *parts])
    upper = [f.upstream(number) for number in range(states)]
    zeros = [f.filled(0.0, name) for name in asked]
    arrays = [*before, *f.inputs[states:], *(f.upstream(states + number) for number in collected)]
    gradients = f.several(
        len(after) + len(totals) + len(parts), "Scan", *upper, *zeros, *arrays, body=body, num_scan_inputs=len(arrays),
        scan_input_axes=[*[0] * states, *axes, *(result_axes[number] for number in collected)],
        scan_input_directions=[
            *[1] * states, *(1 - one for one in directions), *(1 - result_directions[number] for number in collected)
        ],
        scan_output_axes=[axes[number] for number in taken],
        scan_output_directions=[1 - directions[number] for number in taken],
    )  # fmt: skip
    scanned = (f.input(states + number) for number in taken)
    for gradient, name in zip(gradients, [*f.inputs[:states], *asked, *scanned], strict=True):
        f.typed(gradient, name)
    by_slice = dict(zip(taken, gradients[states + len(asked) :], strict=True))
    by_name = dict(zip(asked, gradients[states:], strict=False))
    return [
        *gradients[:states],
        *(by_slice.get(number, "") for number in range(slices)),
        *(by_name.get(name, "") for name in captured),
    ]
