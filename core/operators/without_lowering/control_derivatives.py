"""Derivatives of If, Scan and Loop: bodies that compute their nodes again, and then the gradients of what they read.

The gradient of a Scan or Loop is a Scan from the last step to the first, over the states before each step, which the
node gives from now on as well; so does a Scan what products gave, which are not computed again. What bodies read from
outside has its gradients summed in states of their own, or, of factors of products, in one product behind the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


# ---- Scan and Loop ------------------------------------------------------------------------------------------------


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
    """A Scan, or a Loop as one: its body, of states and then slices, and what these are at first, and a slice of.

    Axes and directions are of what goes in and comes out in slices.
    """

    graph: onnx.GraphProto
    states: int
    values: Sequence[str]
    axes: Sequence[int]
    directions: Sequence[int]
    result_axes: Sequence[int]
    result_directions: Sequence[int]


def _may_fit(f: Adjoint, name: str, other: str) -> bool:
    """Whether nothing that is known of the shapes of two values says that they differ."""
    if name not in f.types or not f.types[name].tensor_type.HasField("shape"):
        return True
    pairs = list(zip(f.shape(name), f.shape(other), strict=False))
    known = [(one, two) for one, two in pairs if isinstance(one, int) and isinstance(two, int)]
    return f.rank(name) == f.rank(other) and all(one == two for one, two in known)


def _body(f: Adjoint) -> onnx.GraphProto:
    """Return the body of a node that is known in all that its derivative needs."""
    f.require(all(name in f.types for name in f.inputs if name), "its derivative needs the types of its inputs")
    return _attribute(f, "body").g


def _scanned(f: Adjoint) -> Steps:
    graph, slices = _body(f), f.attribute("num_scan_inputs")
    states = len(f.inputs) - slices
    results = len(graph.output) - states
    f.require(slices > 0, "of a Scan over nothing no derivative is known")
    return Steps(
        graph,
        states,
        f.inputs,
        f.attribute("scan_input_axes") or [0] * slices,
        f.attribute("scan_input_directions") or [0] * slices,
        f.attribute("scan_output_axes") or [0] * results,
        f.attribute("scan_output_directions") or [0] * results,
    )


def _stacked(
    f: Adjoint, graph: onnx.GraphProto, kinds: Mapping[str, TypeProto], count: onnx.TensorShapeProto.Dimension
) -> list[str]:
    """Let the node give what its body is given in each step, by name; return that, stacked."""
    stacked = []
    for name, kind in kinds.items():
        copy, output = f.fresh(f"{name}/before"), f.fresh(f"{f.node.output[0]}/{name}")
        graph.node.append(helper.make_node("Identity", [name], [copy], copy))
        graph.output.append(helper.make_value_info(copy, kind))
        f.node.output.append(output)
        f.types[output] = _stacked_type(kind, count)
        stacked.append(output)
    for attribute in f.node.attribute:
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            attribute.ints.extend([0] * len(kinds))
    return stacked


@dataclass(frozen=True, slots=True)
class StepBack:
    """A step of the gradient: what `_step_back` says; ``factors`` are of those of what is read that are products.

    Such a gradient ``x^T g`` is not summed step by step: both matrices come out in slices, and one product of all rows
    behind the steps is the sum.
    """

    graph: onnx.GraphProto
    summed: Sequence[str]
    factors: Mapping[str, tuple[str, str]]
    kept: Mapping[str, str]
    """What products of the body gave, which a step takes instead of computing it again: by name, its name here."""


def _products(f: Adjoint, graph: onnx.GraphProto, names: Mapping[str, str]) -> dict[str, str]:
    """Return what products of a body give, of which all of the type is known; ``names`` are those that it has here."""
    made = [node.output[0] for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    known = {name: names[name] for name in made if names.get(name) in f.types}
    return {name: own for name, own in known.items() if None not in f.shape(own) and f.shape(own)}


def _factors(inner: Body, gradient: str) -> tuple[str, str] | None:
    """Return the matrices that a gradient is the product of, the left one transposed; None where it is no such.

    Nor where a step has steps itself: what it gives is of the rows of all these already, and is summed.
    """
    makers = {node.output[0]: node for node in inner.nodes}
    node = None if any(one.op_type == "Scan" for one in inner.nodes) else makers.get(gradient)
    left = None if node is None or node.op_type != "MatMul" else makers.get(node.input[0])
    if node is None or left is None or left.op_type != "Transpose":
        return None
    found = left.input[0], node.input[1]
    shapes = [inner.shape(one) if one in inner.types else () for one in found]
    return found if all(len(shape) == 2 and isinstance(shape[1], int) and shape[1] > 0 for shape in shapes) else None


def _step_back(
    f: Adjoint, steps: Steps, asked: Sequence[str], collected: Sequence[int], taken: Sequence[int], keeps: bool = False
) -> StepBack:
    """Return a step of the gradient.

    It takes the gradients of the states behind the step, the sums of those of what is ``asked`` from outside, the
    states and slices before it, the gradients of the results that are ``collected``, and if it ``keeps`` them what
    products gave; it gives the first two as they are before the step, the gradients of the slices ``taken``, and
    factors.
    """
    names = {"": ""} | {value.name: f.fresh(value.name) for value in steps.graph.input}
    inputs = [names[value.name] for value in steps.graph.input]
    for number, name in enumerate(inputs):
        kind = f.types[steps.values[number]]
        f.types[name] = kind if number < steps.states else _slice_type(kind, steps.axes[number - steps.states])
    ends = [value.name for value in steps.graph.output]
    inner = _again(f, steps.graph, names)
    ends = [names.get(name, name) for name in ends]
    for name, before, value in zip(ends, inputs[: steps.states], steps.graph.input, strict=False):
        fits = _may_fit(f, name, before)
        f.require(fits, f"its derivative needs states that keep their shapes, unlike '{value.name}'")
    upstream: dict[str, str] = {}

    def gradient_of(number: int, like: str) -> str:
        name = f.typed(f.fresh(f"{ends[number]}/gradient"), like)
        upstream[ends[number]] = inner("Add", upstream[ends[number]], name) if ends[number] in upstream else name
        return name

    carried = [gradient_of(number, steps.values[number]) for number in range(steps.states)]
    given = [gradient_of(steps.states + number, ends[steps.states + number]) for number in collected]
    found = f.pull_into(inner, list(inner.nodes), upstream, [*inputs, *asked])
    factors = {name: pair for name in asked if (pair := _factors(inner, found.get(name, ""))) is not None}
    summed = [name for name in asked if name not in factors]
    sums = [f.typed(f.fresh(f"{name}/sum"), name) for name in summed]
    after = [_or_zeros(inner, found, name) for name in inputs[: steps.states]]
    totals = [
        f.typed(inner("Add", total, found[name]) if name in found else inner("Identity", total), name)
        for total, name in zip(sums, summed, strict=True)
    ]
    parts = [_or_zeros(inner, found, inputs[steps.states + number]) for number in taken]
    sides = [f.typed(inner("Identity", one), one) for pair in factors.values() for one in pair]
    kept = _products(f, steps.graph, names) if keeps else {}
    inner.nodes[:] = [node for node in inner.nodes if node.output[0] not in kept.values()]
    graph = _graph(f, inner, [*carried, *sums, *inputs, *given, *kept.values()], [*after, *totals, *parts, *sides])
    return StepBack(graph, summed, factors, kept)


@dataclass(frozen=True, slots=True)
class Found:
    """Gradients of states, of slices by their number, and of what is read from outside by its name."""

    states: Sequence[str]
    slices: Mapping[int, str]
    captured: Mapping[str, str]


def _back(f: Adjoint, steps: Steps, step: StepBack, before: Sequence[str]) -> Found:
    """Write the Scan in the other direction, of a step of the gradient; ``before`` are states, and what is kept."""
    states, (collected, taken), asked = steps.states, _sides(f, steps), step.summed
    sides = 2 * len(step.factors)
    upper = [f.typed(f.upstream(number), steps.values[number]) for number in range(states)]
    before, kept = before[:states], before[states:]
    arrays = [*steps.values[states:], *(f.upstream(states + number) for number in collected), *kept]
    given: dict[str, Any] = {
        "scan_output_axes": [*(steps.axes[number] for number in taken), *[0] * sides],
        "scan_output_directions": [*(1 - steps.directions[number] for number in taken), *[0] * sides],
    }
    given = given if taken or sides else {}
    count = states + len(asked) + len(taken)
    found = f.several(
        count + sides, "Scan", *upper, *(f.filled(0.0, name) for name in asked), *before, *arrays,
        body=step.graph, num_scan_inputs=len(before) + len(arrays),
        scan_input_axes=[
            *[0] * states, *steps.axes, *(steps.result_axes[number] for number in collected), *[0] * len(kept),
        ],
        scan_input_directions=[
            *[1] * states, *(1 - one for one in steps.directions),
            *(1 - steps.result_directions[number] for number in collected), *[1] * len(kept),
        ],
        **given,
    )  # fmt: skip
    values = [*steps.values[:states], *asked, *(steps.values[states + number] for number in taken)]
    for gradient, name in zip(found, values, strict=False):
        f.typed(gradient, name)
    by_slice = dict(zip(taken, found[states + len(asked) : count], strict=True))
    captured = dict(zip(asked, found[states:], strict=False))
    pairs = zip(step.factors.items(), found[count::2], found[count + 1 :: 2], strict=True)
    for (name, (left, right)), lefts, rights in pairs:
        rows, gradients = (f.reshaped(whole, -1, _width(f, one)) for whole, one in ((lefts, left), (rights, right)))
        captured[name] = f.typed(f("MatMul", f.swapped(rows), gradients), name)
    return Found(found[:states], by_slice, captured)


def _width(f: Adjoint, matrix: str) -> int:
    """Return the number of columns, which `_factors` has found known."""
    width = f.shape(matrix)[1]
    assert isinstance(width, int), matrix
    return width


def _sides(f: Adjoint, steps: Steps) -> tuple[list[int], list[int]]:
    """Return the numbers of the results that have gradients, and of the slices whose gradients are asked for."""
    collected = [number for number in range(len(steps.result_axes)) if f.has_gradient(steps.states + number)]
    taken = [number for number in range(len(steps.axes)) if f.is_varied(steps.values[steps.states + number])]
    return collected, taken


def scan(f: Adjoint) -> list[str]:
    """A Scan in the other direction: see the module."""
    steps, captured = _scanned(f), f.captured
    asked = [name for name in captured if f.is_varied(name)]
    step = _step_back(f, steps, asked, *_sides(f, steps), keeps=True)
    count = f.types[f.input(steps.states)].tensor_type.shape.dim[steps.axes[0]]
    names = [value.name for value in steps.graph.input[: steps.states]]
    kinds = {name: f.types[own] for name, own in zip(names, f.inputs, strict=False)}
    kinds |= {name: f.types[own] for name, own in step.kept.items()}
    found = _back(f, steps, step, _stacked(f, steps.graph, kinds, count))
    slices = (found.slices.get(number, "") for number in range(len(steps.axes)))
    return [*found.states, *slices, *(found.captured.get(name, "") for name in captured)]


def loop(f: Adjoint) -> list[str]:
    """A Scan, from the last step to the first, over the numbers of the steps that were taken and the states before."""
    graph, captured = _body(f), f.captured
    asked = [name for name in captured if f.is_varied(name)]
    number, going, *carried = graph.input
    states, results = len(carried), len(graph.output) - 1 - len(carried)
    scalars = {value.name: _scalar_type(value.type) for value in (number, going)}
    kinds = {value.name: f.types[name] for value, name in zip(carried, f.inputs[2:], strict=True)} | scalars
    step = onnx.GraphProto()
    step.CopyFrom(graph)
    del step.input[:], step.output[:]
    step.input.extend([*carried, number, going])
    step.output.extend(graph.output[1:])
    *before, numbers, conditions = _stacked(f, graph, kinds, onnx.TensorShapeProto.Dimension())
    values = [*f.inputs[2:], numbers, conditions]
    steps = Steps(step, states, values, [0, 0], [0, 0], [0] * results, [0] * results)
    found = _back(f, steps, _step_back(f, steps, asked, *_sides(f, steps)), before)
    return ["", "", *found.states, *(found.captured.get(name, "") for name in captured)]


def _scalar_type(stated: TypeProto) -> TypeProto:
    """Return the type of a number of steps or a condition, which is that of a scalar if none is stated."""
    kind = TypeProto()
    kind.CopyFrom(stated)
    kind.tensor_type.shape.SetInParent()
    return kind
