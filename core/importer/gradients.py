"""Gradient of ai.onnx.preview.training: reverse-mode differentiation, written as nodes when a model is imported.

The operators from ``xs`` to ``y`` are computed again of the node's own inputs (what is computed twice goes later), then
every one of them hands the gradient of its result on to its inputs, from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import onnx

from graft.core.graph.dimensions import unique
from graft.core.graph.protos import constants_of, fault_of, put_nodes, types_of, where_of
from graft.core.operators.definition.function_body import Body
from graft.core.shapes.inference import infer_proto

DOMAIN = "ai.onnx.preview.training"
Rule = Callable[[Body, onnx.NodeProto, Sequence[str], str, str], Sequence[str]]
"""Of a node with its inputs and its result here, and the gradient of that: the gradients of its inputs, "" for none."""


def write_gradients(proto: onnx.ModelProto) -> list[str]:
    """Write derivatives in the place of Gradient nodes of the main graph, in place; return the names of these nodes.

    Raises ModelError for an operator of which no derivative is known here.
    """
    wanted = [node for node in proto.graph.node if node.op_type == "Gradient" and node.domain == DOMAIN]
    for node in wanted:
        inferred = infer_proto(proto).graph
        types = types_of(inferred)
        data = constants_of(proto.graph)
        taken = {name for other in proto.graph.node for name in (other.name, *other.input, *other.output)}
        written = _differentiated(Body(node, types, data, partial(unique, taken=taken)), proto.graph)
        place = list(proto.graph.node).index(node)
        put_nodes(proto.graph, [*proto.graph.node[:place], *written, *proto.graph.node[place + 1 :]])
    return [node.name for node in wanted]


def _differentiated(f: Body, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    xs, y = f.attribute("xs"), f.attribute("y")
    fixed = [*xs, *f.attribute("zs", [])]
    f.require(len(fixed) == len(f.inputs), f"it has {len(f.inputs)} inputs for {len(fixed)} names in xs and zs")
    here = dict(zip(fixed, f.inputs, strict=True))
    steps = []
    for node in _path(graph, set(fixed), set(xs), y):
        if node.op_type not in RULES or node.domain:
            raise fault_of(
                node,
                f"it stands between the inputs and the result '{y}' of "
                f"{where_of(f.node)}, and no derivative of it is known; known are those of {', '.join(sorted(RULES))}",
            )
        given = [here.get(name, name) for name in node.input]
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        here[node.output[0]] = result = f(node.op_type, *given, **attributes)
        steps.append((node, given, result))
    f.require(y in here, f"its result '{y}' depends on none of {', '.join(xs)}")
    gradients = {here[y]: _filled(f, 1.0, here[y])}
    for node, given, result in reversed(steps):
        if result in gradients:
            for name, gradient in zip(
                given, RULES[node.op_type](f, node, given, result, gradients[result]), strict=True
            ):
                if gradient:
                    one = _summed(f, gradient, name)
                    gradients[name] = f("Add", gradients[name], one) if name in gradients else one
    for number, name in enumerate(f.inputs[: len(xs)]):
        f.give(number, gradients.get(name) or _filled(f, 0.0, name))
    return f.nodes


def _path(graph: onnx.GraphProto, fixed: set[str], xs: set[str], y: str) -> list[onnx.NodeProto]:
    """Return the nodes, in order, through which ``y`` depends on ``xs`` if all ``fixed`` values are given."""
    depends = set(xs)
    forward = []
    for node in graph.node:
        if depends & set(node.input) and not fixed & set(node.output):
            depends |= set(node.output)
            forward.append(node)
    needed: set[str] = {y}
    path: list[onnx.NodeProto] = []
    for node in reversed(forward):
        if needed & set(node.output):
            needed |= set(node.input)
            path.insert(0, node)
    return path


def _summed(f: Body, gradient: str, target: str) -> str:
    """Return a gradient summed over the axes along which ``target`` was repeated."""
    wide, narrow = f.shape(gradient), f.shape(target)
    more = len(wide) - len(narrow)
    axes = [*range(more), *(one + more for one, extent in enumerate(narrow) if extent == 1 and wide[one + more] != 1)]
    f.require(
        all(one in (1, other) and one is not None for one, other in zip(narrow, wide[more:], strict=True)),
        f"whether '{target}' was repeated is known only at run time",
    )
    if not axes:
        return gradient
    kept = f("ReduceSum", gradient, f.ints(*axes), keepdims=1)
    return f("Squeeze", kept, f.ints(*range(more))) if more else kept


def _filled(f: Body, value: float, other: str) -> str:
    """Return a tensor of one number in the type and shape of another value."""
    return _typed(f, f("Expand", f.like(value, other), f("Shape", other)), other)


def _typed(f: Body, value: str, other: str) -> str:
    """Return a value of which it is known that it has the type of another: its shape is that one's at run time."""
    f.types[value] = f.types[other]
    return value


def _scaled_by(factor: Callable[[Body, str, str], str]) -> Rule:
    """The rule of a function of one number: the gradient times a factor of argument and result."""
    return lambda f, node, given, result, gradient: [f("Mul", gradient, factor(f, given[0], result))]


def _product(f: Body, node: onnx.NodeProto, given: Sequence[str], result: str, gradient: str) -> list[str]:
    return [f("Mul", gradient, given[1]), f("Mul", gradient, given[0])]


def _quotient(f: Body, node: onnx.NodeProto, given: Sequence[str], result: str, gradient: str) -> list[str]:
    above = f("Div", gradient, given[1])
    return [above, f("Neg", f("Mul", above, result))]


def _matrices(f: Body, node: onnx.NodeProto, given: Sequence[str], result: str, gradient: str) -> list[str]:
    f.require(all(f.rank(one) >= 2 for one in given), f"{where_of(node)} has a vector, of which no derivative is known")
    return [f("MatMul", gradient, f.swapped(given[1])), f("MatMul", f.swapped(given[0]), gradient)]


def _reshaped(f: Body, node: onnx.NodeProto, given: Sequence[str], result: str, gradient: str) -> list[str]:
    return [_typed(f, f("Reshape", gradient, f("Shape", given[0])), given[0]), *([""] * (len(given) - 1))]


def _transposed(f: Body, node: onnx.NodeProto, given: Sequence[str], result: str, gradient: str) -> list[str]:
    rank = f.rank(given[0])
    order = next((list(one.ints) for one in node.attribute if one.name == "perm"), list(range(rank))[::-1])
    return [f.transposed(gradient, *(order.index(axis) for axis in range(rank)))]


def _reduced(f: Body, node: onnx.NodeProto, given: Sequence[str], result: str, gradient: str) -> list[str]:
    attributes = {one.name: one.i for one in node.attribute}
    x, axes = given[0], given[1] if len(given) > 1 and given[1] else ""
    if attributes.get("noop_with_empty_axes", 0) and not axes:
        return [gradient, *([""] * (len(given) - 1))]
    if not attributes.get("keepdims", 1):
        gradient = f("Unsqueeze", gradient, axes or f.ints(*range(f.rank(x))))
    each = _typed(f, f("Expand", gradient, f("Shape", x)), x)
    if node.op_type == "ReduceMean":
        count = f("Div", f("Size", x), f("Size", result))
        each = f("Div", each, f("Cast", count, to=f.dtype(x)))
    return [each, *([""] * (len(given) - 1))]


def _one_minus(f: Body, value: str) -> str:
    return f("Sub", f.like(1.0, value), value)


RULES: Mapping[str, Rule] = {
    "Identity": lambda f, node, given, result, gradient: [gradient],
    "Add": lambda f, node, given, result, gradient: [gradient, gradient],
    "Sub": lambda f, node, given, result, gradient: [gradient, f("Neg", gradient)],
    "Mul": _product,
    "Div": _quotient,
    "MatMul": _matrices,
    "Neg": lambda f, node, given, result, gradient: [f("Neg", gradient)],
    "Abs": _scaled_by(lambda f, x, y: f("Sign", x)),
    "Exp": _scaled_by(lambda f, x, y: y),
    "Log": _scaled_by(lambda f, x, y: f("Reciprocal", x)),
    "Sqrt": _scaled_by(lambda f, x, y: f("Div", f.like(0.5, y), y)),
    "Reciprocal": _scaled_by(lambda f, x, y: f("Neg", f("Mul", y, y))),
    "Sin": _scaled_by(lambda f, x, y: f("Cos", x)),
    "Cos": _scaled_by(lambda f, x, y: f("Neg", f("Sin", x))),
    "Relu": _scaled_by(lambda f, x, y: f("Sign", y)),
    "Tanh": _scaled_by(lambda f, x, y: _one_minus(f, f("Mul", y, y))),
    "Sigmoid": _scaled_by(lambda f, x, y: f("Mul", y, _one_minus(f, y))),
    "Softplus": _scaled_by(lambda f, x, y: f("Sigmoid", x)),
    "Reshape": _reshaped,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Flatten": _reshaped,
    "Transpose": _transposed,
    "ReduceSum": _reduced,
    "ReduceMean": _reduced,
}
"""The derivatives that are known, by operator."""
