"""Scans of Scans: a Scan of many steps as one over segments of steps, so that its gradient keeps fewer states.

The gradient of a Scan keeps the states before each step, and what products gave in it. Of a Scan over segments it keeps
the states before each segment, and those of the steps of one segment, which it runs again first: of n steps twice the
root of n. Recurrent layers, and Loops of a known number of steps, are written as Scans for that; a Loop that may end
earlier, and gives nothing but its last states, is a Loop of Loops of a few steps.
"""

from __future__ import annotations

from functools import partial
from math import isqrt

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graft.core.graph.dimensions import unique
from graft.core.graph.protos import constants_of, every_graph, every_node, held_by, put_nodes, types_of
from graft.core.operators.definition.function_body import Body, Extent
from graft.core.operators.products.plain_recurrence import GATES, recurrence
from graft.core.shapes.inference import infer_proto

STEPS = 32
"""Steps of a segment of a Loop of which no largest number of steps is known."""


def segment_steps(proto: onnx.ModelProto) -> None:
    """Write Scans, Loops and recurrent layers of a model's main graph over segments, in place, where they have some."""
    inferred = infer_proto(proto).graph
    taken = {name for one in every_node(proto.graph.node) for name in (one.name, *one.input, *one.output)}
    taken |= {one.name for graph in every_graph(inferred) for one in (*graph.input, *graph.initializer)}
    types, data, fresh = types_of(inferred), constants_of(proto.graph), partial(unique, taken=taken)
    nodes: list[onnx.NodeProto] = []
    for node in proto.graph.node:
        layer = Body(node, types, data, fresh)
        if node.op_type in GATES and node.domain in ("", "ai.onnx"):
            recurrence(layer)
        elif node.op_type == "Loop" and (count := _count(layer)):
            _as_scan(layer, count)
        elif node.op_type == "Loop" and _gives_states(layer):
            _as_loops(layer)
        else:
            layer.nodes.append(node)
        for one in layer.nodes:
            nodes += _segmented(Body(one, types, data, fresh)) if one.op_type == "Scan" else [one]
    put_nodes(proto.graph, nodes)


def _count(f: Body) -> int:
    """Return how many steps a Loop has, 0 where that is not known: where it is computed, or a step may be the last."""
    most, going, graph = f.contents(f.input(0)), f.contents(f.input(1)), f.attribute("body")
    held = {graph.input[1].name, *(one.name for one in graph.initializer if _is_true(one))}
    for node in graph.node:
        if _is_true(held_by(node) if node.op_type == "Constant" else None):
            held.add(node.output[0])
        if node.op_type == "Identity" and node.input[0] in held:
            held.add(node.output[0])
    is_whole = (not f.input(1) or (going is not None and bool(going))) and graph.output[0].name in held
    return int(most) if is_whole and most is not None else 0


def _is_true(tensor: TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == TensorProto.BOOL and bool(numpy_helper.to_array(tensor).all())


def _as_scan(f: Body, count: int) -> None:
    """Write a Loop as a Scan over the numbers of its steps."""
    graph = onnx.GraphProto()
    graph.CopyFrom(f.attribute("body"))
    number, going, *states = graph.input
    del graph.input[:], graph.output[0]
    graph.input.extend([*states, number])
    graph.node.insert(0, helper.make_node("Constant", [], [going.name], value=numpy_helper.from_array(np.array(True))))
    numbers = f.constant(np.arange(count))
    f.add(helper.make_node("Scan", [*f.inputs[2:], numbers], f.node.output, f.node.name, body=graph, num_scan_inputs=1))


def _gives_states(f: Body) -> bool:
    """Whether a Loop has states of known types, and gives nothing else."""
    return 2 < len(f.inputs) == len(f.attribute("body").output) + 1 and all(name in f.types for name in f.inputs[2:])


def _as_loops(f: Body) -> None:
    """Write a Loop as one over segments of its steps, which each go on until theirs are taken or one is the last."""
    limit, going, *states = f.inputs
    most = f.contents(limit) if limit else None
    length = STEPS if most is None else isqrt(max(int(most) - 1, 0)) + 1
    whole = f("Reshape", limit, f.ints()) if limit else ""
    size, before = f.constant(length, np.int64), f.constant(length - 1, np.int64)
    segments = f("Div", f("Add", whole, before), size) if limit else ""
    number, goes, *firsts = (f.fresh(f"{f.node.name}/{part}") for part in ("segment", "going", *states))
    with f.apart() as nodes:
        own = f.constant(length, np.int64)
        first = f("Mul", number, own)
        left = f("Min", f("Sub", whole, first), own) if limit else own
        ends = [f.fresh(f"{f.node.name}/{name}") for name in (*states, "ends")]
        f.add(helper.make_node("Loop", [left, goes, *firsts], ends, f.node.name, body=_told(f, first)))
        goes_on = f("Gather", f("Reshape", ends[-1], f.ints(-1)), f.constant(-1, np.int64))
    scalars = [(number, TensorProto.INT64), (goes, TensorProto.BOOL), (goes_on, TensorProto.BOOL)]
    one, two, more = (helper.make_tensor_value_info(name, kind, []) for name, kind in scalars)
    before_each, behind = (
        [helper.make_value_info(own, f.types[name]) for own, name in zip(names, states, strict=False)]
        for names in (firsts, ends)
    )
    body = helper.make_graph(nodes, f"{f.node.name}/segments", [one, two, *before_each], [more, *behind])
    name = f.fresh(f"{f.node.name}/segments")
    f.add(helper.make_node("Loop", [segments, going, *states], f.node.output, name, body=body))


def _told(f: Body, first: str) -> onnx.GraphProto:
    """Return the body of a Loop whose steps are counted from ``first`` on, and which gives whether each is the last."""
    graph = onnx.GraphProto()
    graph.CopyFrom(f.attribute("body"))
    number, own, ends = graph.input[0].name, *(f.fresh(f"{f.node.name}/{part}") for part in ("step", "ends"))
    graph.input[0].name = own
    graph.node.insert(0, helper.make_node("Add", [own, first], [number], own))
    graph.node.append(helper.make_node("Identity", [graph.output[0].name], [ends], ends))
    graph.output.append(helper.make_tensor_value_info(ends, TensorProto.BOOL, []))
    return graph


def _segmented(f: Body) -> list[onnx.NodeProto]:
    """Return a Scan over segments of one, or the Scan itself where steps are of no known number, or of a prime."""
    slices = f.attribute("num_scan_inputs")
    states, results = len(f.inputs) - slices, len(f.attribute("body").output) - len(f.inputs) + slices
    names = [*f.inputs[states:], *f.node.output[states:]]
    axes = [*(f.attribute("scan_input_axes") or [0] * slices), *(f.attribute("scan_output_axes") or [0] * results)]
    if not slices or len(names) < len(axes) or not all(_is_known(f, name) for name in names):
        return [f.node]
    axes = [axis % f.rank(name) for name, axis in zip(names, axes, strict=True)]
    count = f.shape(names[0])[axes[0]]
    parts = next((one for one in range(isqrt(count), 1, -1) if count % one == 0), 1) if isinstance(count, int) else 1
    if parts == 1:
        return [f.node]
    step = onnx.NodeProto()
    step.CopyFrom(f.node)
    step.name = f.fresh(f"{f.node.name}/segment")
    step.input[:] = [f.fresh(f"{name}/segment") for name in f.inputs]
    step.output[:] = [f.fresh(f"{name}/segment") for name in f.node.output]
    pieces = [helper.make_tensor_type_proto(f.dtype(name), _split(f.shape(name), axis, [count // parts]))
              for name, axis in zip(names, axes, strict=True)]  # fmt: skip
    carried = [f.types[name] for name in f.inputs[:states]]
    given, made = (
        [helper.make_value_info(name, kind) for name, kind in zip(ends, (*carried, *kinds), strict=True)]
        for ends, kinds in ((step.input, pieces[:slices]), (step.output, pieces[slices:]))
    )
    body = helper.make_graph([step], f"{step.name}/body", given, made)
    more = {one.name: helper.get_attribute_value(one) for one in f.node.attribute if one.name != "body"}
    arrays = [
        f("Reshape", name, f.ints(*map(_number, _split(f.shape(name), axis, [parts, count // parts]))))
        for name, axis in zip(names[:slices], axes, strict=False)
    ]
    more |= {"scan_input_axes": axes[:slices], "scan_output_axes": axes[slices:]} if results else {}
    found = f.several(states + results, "Scan", *f.inputs[:states], *arrays, body=body, **more)
    for number, name in enumerate(found):
        whole = f.node.output[number]
        f.give(number, name if number < states else f("Reshape", name, f.ints(*map(_number, f.shape(whole)))))
    return f.nodes


def _is_known(f: Body, name: str) -> bool:
    """Whether all extents of a value but one at most are numbers."""
    shaped = name in f.types and f.types[name].tensor_type.HasField("shape")
    return shaped and sum(not isinstance(one, int) for one in f.shape(name)) < 2


def _split(shape: tuple[Extent, ...], axis: int, extents: list[int]) -> list[Extent]:
    """Return a shape with others in the place of an extent."""
    return [*shape[:axis], *extents, *shape[axis + 1 :]]


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else -1
