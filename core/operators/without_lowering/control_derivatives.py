"""Derivatives of If and Scan: bodies that compute their nodes again, and then the gradients of what they read.

The gradient of a Scan is a Scan from the last step to the first, over the states before each step, which the node
gives from now on as well. What bodies read from outside has its gradients summed in states of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Steps:
    """A Scan: its body, the number of its states, and axes and directions of what goes in and comes out in slices."""

    graph: onnx.GraphProto
    states: int
    axes: Sequence[int]
    directions: Sequence[int]
    result_axes: Sequence[int]
    result_directions: Sequence[int]


def _steps(f: Adjoint) -> Steps:
    graph, slices = _attribute(f, "body").g, f.attribute("num_scan_inputs")
    states = len(f.inputs) - slices
    results = len(graph.output) - states
    f.require(slices > 0, "of a Scan over nothing no derivative is known")
    f.require(all(name in f.types for name in f.inputs), "its derivative needs the types of its inputs")
    return Steps(
        graph,
        states,
        f.attribute("scan_input_axes") or [0] * slices,
        f.attribute("scan_input_directions") or [0] * slices,
        f.attribute("scan_output_axes") or [0] * results,
        f.attribute("scan_output_directions") or [0] * results,
    )


def _states_before(f: Adjoint, scan: Steps) -> list[str]:
    """Let the node give the states before each step; return them, stacked."""
    count = f.types[f.input(scan.states)].tensor_type.shape.dim[scan.axes[0]]
    stacked = []
    for value, name in zip(scan.graph.input[: scan.states], f.inputs, strict=False):
        copy, output = f.fresh(f"{value.name}/before"), f.fresh(f"{name}/before")
        scan.graph.node.append(helper.make_node("Identity", [value.name], [copy], copy))
        scan.graph.output.append(helper.make_value_info(copy, f.types[name]))
        f.node.output.append(output)
        f.types[output] = _stacked_type(f.types[name], count)
        stacked.append(output)
    for attribute in f.node.attribute:
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            attribute.ints.extend([0] * scan.states)
    return stacked


def _step_back(
    f: Adjoint, scan: Steps, asked: Sequence[str], collected: Sequence[int], taken: Sequence[int]
) -> onnx.GraphProto:
    """Return a step of the gradient.

    It takes the gradients of the states behind the step, the sums of those of what is ``asked`` from outside, the
    states and slices before it, and the gradients of the results that are ``collected``; it gives the first two as they
    are before the step, and the gradients of the slices ``taken``.
    """
    names = {"": ""} | {value.name: f.fresh(value.name) for value in scan.graph.input}
    inputs = [names[value.name] for value in scan.graph.input]
    for number, name in enumerate(inputs):
        kind = f.types[f.input(number)]
        f.types[name] = kind if number < scan.states else _slice_type(kind, scan.axes[number - scan.states])
    ends = [value.name for value in scan.graph.output]
    inner = _again(f, scan.graph, names)
    ends = [names.get(name, name) for name in ends]
    upstream: dict[str, str] = {}

    def gradient_of(number: int, like: str) -> str:
        name = f.typed(f.fresh(f"{ends[number]}/gradient"), like)
        upstream[ends[number]] = inner("Add", upstream[ends[number]], name) if ends[number] in upstream else name
        return name

    carried = [gradient_of(number, f.input(number)) for number in range(scan.states)]
    given = [gradient_of(scan.states + number, ends[scan.states + number]) for number in collected]
    sums = [f.typed(f.fresh(f"{name}/sum"), name) for name in asked]
    found = f.pull_into(inner, list(inner.nodes), upstream, [*inputs, *asked])
    after = [_or_zeros(inner, found, name) for name in inputs[: scan.states]]
    totals = [
        f.typed(inner("Add", total, found[name]) if name in found else inner("Identity", total), name)
        for total, name in zip(sums, asked, strict=True)
    ]
    parts = [_or_zeros(inner, found, inputs[scan.states + number]) for number in taken]
    return _graph(f, inner, [*carried, *sums, *inputs, *given], [*after, *totals, *parts])


def scan(f: Adjoint) -> list[str]:
    """A Scan in the other direction: see the module."""
    steps, captured = _steps(f), f.captured
    states = steps.states
    asked = [name for name in captured if f.is_varied(name)]
    collected = [number for number in range(len(steps.result_axes)) if f.has_gradient(states + number)]
    taken = [number for number in range(len(steps.axes)) if f.is_varied(f.input(states + number))]
    upper = [f.upstream(number) for number in range(states)]
    arrays = [*f.inputs[states:], *(f.upstream(states + number) for number in collected)]
    body = _step_back(f, steps, asked, collected, taken)
    before = _states_before(f, steps)
    found = f.several(
        states + len(asked) + len(taken), "Scan", *upper, *(f.filled(0.0, name) for name in asked), *before, *arrays,
        body=body, num_scan_inputs=len(before) + len(arrays),
        scan_input_axes=[*[0] * states, *steps.axes, *(steps.result_axes[number] for number in collected)],
        scan_input_directions=[
            *[1] * states, *(1 - one for one in steps.directions),
            *(1 - steps.result_directions[number] for number in collected),
        ],
        scan_output_axes=[steps.axes[number] for number in taken],
        scan_output_directions=[1 - steps.directions[number] for number in taken],
    )  # fmt: skip
    values = [*f.inputs[:states], *asked, *(f.input(states + number) for number in taken)]
    for gradient, name in zip(found, values, strict=True):
        f.typed(gradient, name)
    by_slice = dict(zip(taken, found[states + len(asked) :], strict=True))
    by_name = dict(zip(asked, found[states:], strict=False))
    return [
        *found[:states],
        *(by_slice.get(number, "") for number in range(len(steps.axes))),
        *(by_name.get(name, "") for name in captured),
    ]
