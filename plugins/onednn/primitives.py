"""From kernels in ONNX's terms to kernels in oneDNN's: the graph that the native loader reads.

Every kernel becomes one primitive. Its attributes name the primitive, its parameters, whether it has a bias, and its
post-operations in order; its inputs are those that the primitive reads: source, weights, bias, then the operands of
post-operations. Constants that only carried parameters (bounds of Clip, shapes, axes) are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graft.core.affine.expressions import add, maximum, minimum
from graft.errors import CompileError
from graft.plugins.json_graph import BodyOperator, Dimension, Entry, JsonGraph, JsonNode
from graft.plugins.onednn.operators import NO_ROW, ROWS, Eltwise, Row
from graft.plugins.onednn.pooling_windows import window
from graft.runtime.extents import Extent

Shape = tuple[Extent, ...]
"""Numbers, or expressions over the graph's symbols, which the loader knows the values of."""

SCALE_SHIFT = ("onednn.scale_shift_relu", "onednn.scale_shift")
"""The composites that become a product with post-operations."""


@dataclass(slots=True)
class Kernel:
    """A kernel while it is lowered: where it came from, and what has been decided.

    ``inputs`` holds the entries that the primitive reads; ``shapes`` and ``constants`` describe the inputs that the
    JSON node has.
    """

    node: JsonNode
    shapes: tuple[Shape, ...]
    constants: tuple[np.ndarray | None, ...]
    inputs: list[Entry | np.ndarray] = field(default_factory=list)
    """An array is a constant made here."""
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The shape of the kernel's output."""
        return known(self.node.shape[0], self.node)

    def input(self, operator: BodyOperator, index: int) -> int | None:
        """Return which input of the kernel is input ``index`` of an operator; None if it is absent or inner."""
        source = operator.inputs[index] if index < len(operator.inputs) else None
        if source is None or source[0] != -1 or self.node.inputs[source[1]].is_absent:
            return None
        return source[1]

    def take(self, operator: BodyOperator, index: int) -> int:
        """Let the primitive read input ``index`` of an operator; return the input of the kernel.

        Raise CompileError where the operator lacks it.
        """
        place = self.input(operator, index)
        if place is None:
            raise CompileError(f"{self.node.where}: oneDNN needs input {index} of {operator.op}", node=self.node.name)
        self.inputs.append(self.node.inputs[place])
        return place

    def operator_constants(self, operator: BodyOperator) -> list[np.ndarray | None]:
        """Return the contents of an operator's inputs; an absent one is an empty array, a computed one None."""
        return [
            np.empty(0) if source is None or self._absent(source) else self._constant(source)
            for source in operator.inputs
        ]

    def _absent(self, source: tuple[int, int]) -> bool:
        return source[0] == -1 and self.node.inputs[source[1]].is_absent

    def _constant(self, source: tuple[int, int]) -> np.ndarray | None:
        return self.constants[source[1]] if source[0] == -1 else None


def known(shape: tuple[Dimension, ...] | None, node: JsonNode) -> Shape:
    """Return a shape that follows from those of the region's inputs; raise CompileError for another one."""
    sizes = tuple(size for size in shape or () if size is not None)
    if shape is None or len(sizes) < len(shape):
        raise CompileError(f"{node.where}: the shapes of the region's inputs do not say its shape", node=node.name)
    return sizes


def lower_graph(graph: JsonGraph, constants: Mapping[str, np.ndarray]) -> tuple[JsonGraph, dict[str, np.ndarray]]:
    """Return the graph in oneDNN's terms, with the constants that it still reads.

    Raises CompileError for a kernel that no primitive computes.
    """
    kernels = {
        (number, index): kernel
        for number, node in enumerate(graph.nodes)
        if node.op == "kernel"
        for index, kernel in enumerate(_lower(graph, constants, node))
    }
    used = {one.node for kernel in kernels.values() for one in kernel.inputs if isinstance(one, Entry)}
    used |= {head.node for head in graph.heads}
    nodes: list[JsonNode] = []
    places: dict[tuple[int, int], int] = {}
    for number, node in enumerate(graph.nodes):
        if node.op == "input" or (node.op == "const" and number in used):
            places[number, 0] = len(nodes)
            nodes.append(node)
    kept = {node.name: constants[node.name] for node in nodes if node.op == "const"}
    for place, kernel in kernels.items():
        entries = []
        for one in kernel.inputs:
            if isinstance(one, np.ndarray):
                name = f"{graph.symbol}.constant{len(nodes)}"
                kept[name] = one
                entries.append(Entry(len(nodes)))
                nodes.append(JsonNode("const", name, ("float32",), (one.shape,)))
            else:
                entries.append(Entry(places[one.node, one.index]))
        places[place] = len(nodes)
        nodes.append(replace(kernel.node, inputs=tuple(entries), attributes=kernel.attributes, body=(), results=()))
    heads = tuple(Entry(places[head.node, head.index]) for head in graph.heads)
    return JsonGraph(graph.symbol, tuple(nodes), heads, graph.symbols), kept


def _lower(graph: JsonGraph, constants: Mapping[str, np.ndarray], node: JsonNode) -> list[Kernel]:
    """Return the kernels of a node, one per output."""
    for shape in node.shape:
        known(shape, node)
    sources = [None if entry.is_absent else graph.nodes[entry.node] for entry in node.inputs]
    shapes = tuple(
        () if one is None else known(one.shape[entry.index], one)
        for one, entry in zip(sources, node.inputs, strict=True)
    )
    contents = tuple(constants[one.name] if one is not None and one.op == "const" else None for one in sources)
    anchor = node.body[0]
    row = ROWS.get(anchor.op, NO_ROW)
    if row.kind == "split":
        return _split(node, shapes, contents)
    kernel = Kernel(node, shapes, contents)
    if node.name in SCALE_SHIFT:
        _scale_shift(kernel)
    elif len(node.body) > 1 and row.kind in ("", "binary", "eltwise"):
        _written_out(kernel)
    elif not row.kind:
        raise _unknown(kernel, anchor)
    else:
        KINDS[row.kind](kernel, anchor, row)
        _post_operations(kernel)
    return [kernel]


def _split(node: JsonNode, shapes: tuple[Shape, ...], contents: tuple[np.ndarray | None, ...]) -> list[Kernel]:
    axis = node.body[0].attributes.get("axis", 0) % len(shapes[0])
    kernels: list[Kernel] = []
    start: Extent = 0
    for dtype, shape in zip(node.dtype, node.shape, strict=True):
        kernel = Kernel(replace(node, dtype=(dtype,), shape=(shape,)), shapes, contents)
        kernel.take(node.body[0], 0)
        offsets = [start if place == axis else 0 for place in range(len(shapes[0]))]
        kernel.attributes = {"primitive": "slice", "offsets": offsets}
        start = add(start, kernel.shape[axis])
        kernels.append(kernel)
    return kernels


def _written_out(kernel: Kernel) -> None:
    """Lower an activation that the model wrote as several operators over one computed input."""
    computed = [place for place, constant in enumerate(kernel.constants) if constant is None]
    kernel.inputs.append(kernel.node.inputs[computed[0]])
    kernel.attributes = {"primitive": "eltwise", **_activation(kernel, list(kernel.node.body)).to_json()}


def _scale_shift(kernel: Kernel) -> None:
    """Lower a product and a sum with one constant per channel: a product with post-operations, one pass in memory."""
    scale, shift = kernel.node.body[0], kernel.node.body[1]
    data = 0 if kernel.operator_constants(scale)[0] is None else 1
    kernel.take(scale, data)
    kernel.take(scale, 1 - data)
    kernel.take(shift, 0 if kernel.input(shift, 0) is not None else 1)
    kernel.attributes = {"primitive": "binary", "algorithm": "mul", "post_ops": [{"algorithm": "add", "input": 2}]}
    if len(kernel.node.body) > 2:
        kernel.attributes["post_ops"].append(_activation(kernel, list(kernel.node.body[2:])).to_json())


def _post_operations(kernel: Kernel) -> None:
    """Turn the operators behind the first into a bias and post-operations.

    Additions of kernel inputs come first; what follows is one activation, written as one operator or as several
    (the composite's name ends in the oneDNN algorithm then).
    """
    rest = list(kernel.node.body[1:])
    rows: list[dict[str, Any]] = []
    while rest and rest[0].op == "Add" and not _is_tail(rest):
        rows += _add(kernel, rest.pop(0), first=not rows)
    if rest:
        rows.append(_activation(kernel, rest).to_json())
    if rows:
        kernel.attributes["post_ops"] = rows


def _is_tail(rest: list[BodyOperator]) -> bool:
    return all(source is None or source[0] != -1 for source in rest[0].inputs)


def _add(kernel: Kernel, operator: BodyOperator, *, first: bool) -> list[dict[str, Any]]:
    index = 0 if kernel.input(operator, 0) is not None else 1
    place = kernel.input(operator, index)
    if place is None:
        raise CompileError(f"{kernel.node.where}: an addition reads nothing from outside", node=kernel.node.name)
    constant, primitive = kernel.constants[place], kernel.attributes["primitive"]
    channel = 1 if primitive == "convolution" else -1
    may_be_bias = first and not kernel.attributes.get("bias") and primitive in ("convolution", "matmul")
    if may_be_bias and constant is not None and is_per_channel(constant.shape, kernel.shape, channel):
        kernel.attributes["bias"] = 1
        kernel.inputs.append(np.ascontiguousarray(constant.reshape(-1)))
        return []
    kernel.inputs.append(kernel.node.inputs[place])
    return [{"algorithm": "add", "input": len(kernel.inputs) - 1}]


def is_per_channel(shape: Shape, target: Shape, channel: int) -> bool:
    """Whether an operand broadcast to ``target`` has one value for each index of the axis ``channel``."""
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    wanted: list[Extent] = [1] * len(target)
    wanted[channel] = target[channel]
    return list(padded) == wanted


def _activation(kernel: Kernel, operators: list[BodyOperator]) -> Eltwise:
    if len(operators) > 1:
        for algorithm in ("gelu_erf", "gelu_tanh", "swish"):
            if kernel.node.name.endswith(algorithm):
                return Eltwise(algorithm, 1.0 if algorithm == "swish" else 0.0)
    found = _algorithm(kernel, operators[0])
    if found is None or len(operators) > 1:
        names = ", ".join(operator.op for operator in operators)
        raise CompileError(f"{kernel.node.where}: oneDNN has no post-operation for {names}", node=kernel.node.name)
    return found


def _convolution(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    source, weights = kernel.shapes[kernel.take(operator, 0)], kernel.shapes[kernel.take(operator, 1)]
    shape = window(operator.attributes, weights[2:], source[2:], kernel.shape[2:])
    biased = kernel.input(operator, 2) is not None
    if biased:
        kernel.take(operator, 2)
    groups = operator.attributes.get("group", 1)
    kernel.attributes = {"primitive": "convolution", **shape.to_json(), "groups": groups, "bias": int(biased)}


def _matmul(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    kernel.take(operator, 0)
    kernel.take(operator, 1)
    kernel.attributes = {"primitive": "matmul"}


def _gemm(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    _matmul(kernel, operator, row)
    kernel.attributes |= {
        "transpose_a": int(operator.attributes.get("transA", 0)),
        "transpose_b": int(operator.attributes.get("transB", 0)),
    }
    if kernel.input(operator, 2) is not None:
        kernel.take(operator, 2)
        kernel.attributes["bias"] = 1


def _pooling(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    source, attributes = kernel.shapes[kernel.take(operator, 0)], operator.attributes
    sizes = attributes.get("kernel_shape") or source[2:]
    shape = window(attributes, sizes, source[2:], kernel.shape[2:])
    excludes = row.algorithm == "average" and not attributes.get("count_include_pad")
    name = "average_exclude_padding" if excludes else row.algorithm
    kernel.attributes = {"primitive": "pooling", "algorithm": name, "kernel": list(sizes), **shape.to_json()}


def _softmax(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    kernel.take(operator, 0)
    axis = operator.attributes.get("axis", -1) % len(kernel.shape)
    kernel.attributes = {"primitive": "softmax", "algorithm": row.algorithm, "axis": axis}


def _binary(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    order = [0, 1]
    first = kernel.input(operator, 0)
    if row.is_commutative and first is not None and kernel.shapes[first] != kernel.shape:
        order = [1, 0]
    for index in order:
        kernel.take(operator, index)
    kernel.attributes = {"primitive": "binary", "algorithm": row.algorithm}


def _eltwise(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    kernel.take(operator, 0)
    if (algorithm := _algorithm(kernel, operator)) is None:
        raise _unknown(kernel, operator)
    kernel.attributes = {"primitive": "eltwise", **algorithm.to_json()}


def _algorithm(kernel: Kernel, operator: BodyOperator) -> Eltwise | None:
    build = ROWS.get(operator.op, NO_ROW).eltwise
    return None if build is None else build(operator.attributes, kernel.operator_constants(operator))


def _unknown(kernel: Kernel, operator: BodyOperator) -> CompileError:
    return CompileError(f"{kernel.node.where}: no oneDNN primitive computes {operator.op}", node=kernel.node.name)


def _layer_normalization(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    kernel.take(operator, 0)
    kernel.take(operator, 1)
    if kernel.input(operator, 2) is not None:
        kernel.take(operator, 2)
    kernel.attributes = {"primitive": "layer_normalization", "epsilon": operator.attributes.get("epsilon", 1e-5)}


def _lrn(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    kernel.take(operator, 0)
    given = operator.attributes
    kernel.attributes = {
        "primitive": "lrn",
        "size": given["size"],
        "alpha": given.get("alpha", 1e-4),
        "beta": given.get("beta", 0.75),
        "k": given.get("bias", 1.0),
    }


def _batch_normalization(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    for index in range(5):
        kernel.take(operator, index)
    kernel.attributes = {"primitive": "batch_normalization", "epsilon": operator.attributes.get("epsilon", 1e-5)}


def _concat(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    for index in range(len(operator.inputs)):
        kernel.take(operator, index)
    kernel.attributes = {"primitive": "concat", "axis": operator.attributes["axis"] % len(kernel.shape)}


def _reshape(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    kernel.take(operator, 0)
    kernel.attributes = {"primitive": "reshape"}


def _slice(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    place = kernel.take(operator, 0)
    _, starts, _, axes, *_ = (*kernel.operator_constants(operator), None, None, None)
    assert starts is not None, f"{kernel.node.where}: the check demands constants"
    rank = len(kernel.shape)
    chosen = range(len(starts)) if axes is None or axes.size == 0 else axes.tolist()
    offsets: list[Extent] = [0] * rank
    for axis, start in zip(chosen, starts.tolist(), strict=True):
        size = kernel.shapes[place][axis % rank]
        offsets[axis % rank] = maximum(0, add(start, size) if start < 0 else minimum(start, size))
    kernel.attributes = {"primitive": "slice", "offsets": offsets}


def _mean(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    """Lower a mean over all spatial axes: a global pooling."""
    sizes = kernel.shapes[kernel.take(operator, 0)][2:]
    shape = window({}, sizes, sizes, (1,) * len(sizes))
    kernel.attributes = {"primitive": "pooling", "algorithm": row.algorithm, "kernel": list(sizes), **shape.to_json()}


def _transpose(kernel: Kernel, operator: BodyOperator, row: Row) -> None:
    kernel.take(operator, 0)
    permutation = operator.attributes.get("perm") or list(range(len(kernel.shape)))[::-1]
    kernel.attributes = {"primitive": "transpose", "permutation": list(permutation)}


KINDS: Mapping[str, Callable[[Kernel, BodyOperator, Row], None]] = {
    "convolution": _convolution,
    "matmul": _matmul,
    "gemm": _gemm,
    "pooling": _pooling,
    "global pooling": _pooling,
    "mean": _mean,
    "softmax": _softmax,
    "layer normalization": _layer_normalization,
    "batch normalization": _batch_normalization,
    "local response normalization": _lrn,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "concat": _concat,
    "slice": _slice,
    "binary": _binary,
    "eltwise": _eltwise,
}
"""By the kind of primitive; a split is several kernels."""
