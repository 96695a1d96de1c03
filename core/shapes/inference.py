"""Shapes: inference over a model, and values for symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from graft.core.graph.dimensions import Dims, check_given
from graft.core.graph.exception_translation import CONTRADICTIONS, readable, tidy
from graft.core.graph.protos import types_of
from graft.core.graph.skeleton import skeleton_of_model
from graft.core.graph.traversal import all_graphs
from graft.core.graph.view import ValueView
from graft.core.rewriting.fold_constants import FoldConstants
from graft.core.shapes.contradictions import check_rules
from graft.core.shapes.symbolic_shapes import Stated, infer_symbolic_shapes
from graft.errors import ModelError

LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""Operators whose result has the type and shape of their first input, which the functions that define them hide."""
SMALL_BYTES = 4096
"""The largest tensor whose contents may decide about a shape."""


def infer_shapes(model: ir.Model, stated: Stated | None = None, *, has_numbers: bool = False) -> bool:
    """Give every value its type and shape, in place; return whether one was learnt.

    Numbers are those that ONNX infers; what it does not know gets an expression over the symbols of the inputs
    (`graft.core.shapes.symbolic_shapes`). Where that finds none either, shapes may depend on the contents of small
    tensors of floats: these are folded in a copy and shapes inferred again; onnx's own data propagation takes as much
    memory as a model says. ``stated`` are shapes that the model's file states of results. ``has_numbers`` says that the
    model has what ONNX infers. Raises ModelError for what `check_rules` finds; `load` looks for other contradictions,
    before anything is changed.
    """
    changed = _infer_shapes(model, stated, has_numbers)
    check_rules(model)
    return changed


def _infer_shapes(model: ir.Model, stated: Stated | None, has_numbers: bool) -> bool:
    scratch: ir.Model | None = None
    changed = folded = False
    sure: set[ir.Value] = set()
    if stated is None and _has_all(model):
        return False
    if not has_numbers:
        inferred = infer_proto(skeleton_of_model(model))
        if (known := _types_of(inferred)) is not None and not any(map(_has_body, model.graph)):
            values = ir.convenience.create_value_mapping(model.graph)
            return sum(_learn(values[name], *facts) for name, facts in known.items() if name in values) > 0
        sure = _empty(model) if stated is None else sure
        scratch = ir.from_proto(inferred)
        changed = _learn_all(model, scratch)
    doubted = _empty(model) - sure
    more, invented = infer_symbolic_shapes(model, stated, doubted)
    if invented and scratch is None:
        scratch = ir.from_proto(infer_proto(skeleton_of_model(model)))
    while invented and scratch is not None and has_unknown(scratch) and FoldConstants(SMALL_BYTES).run(scratch):
        folded = True
        scratch = ir.from_proto(infer_proto(ir.to_proto(scratch)))
    if folded and scratch is not None and _learn_all(model, scratch):
        infer_symbolic_shapes(model, stated, doubted)
    return changed or more or folded


def _has_all(model: ir.Model) -> bool:
    """Whether every value has a type and extents that are numbers, none of them the 0 of a shape in doubt."""
    return all(
        value.type is not None and value.shape is not None and all(isinstance(one, int) and one for one in value.shape)
        for graph in all_graphs(model)
        for node in graph
        for value in node.outputs
    )


def _empty(model: ir.Model) -> set[ir.Value]:
    """Return the values that have an extent of 0."""
    return {
        value
        for graph in all_graphs(model)
        for node in graph
        for value in node.outputs
        if value.shape is not None and 0 in value.shape
    }


def _learn_all(model: ir.Model, scratch: ir.Model) -> bool:
    """Take over the types and the numbers that were inferred in a copy; return whether anything was new."""
    changed = False
    for graph, learnt in zip(all_graphs(model), all_graphs(scratch), strict=True):
        values = ir.convenience.create_value_mapping(learnt)
        for name, value in ir.convenience.create_value_mapping(graph).items():
            if name in values:
                changed |= _learn(value, values[name].type, _with_numbers(value.shape, values[name].shape))
    return changed


def _with_numbers(old: ir.Shape | None, new: ir.Shape | None) -> ir.Shape | None:
    """Return a shape with the numbers of an inferred one; names that onnx makes up are nothing to go by."""
    if new is None:
        return old
    if old is None or len(old) != len(new):
        return ir.Shape([one if isinstance(one, int) else None for one in new])
    return ir.Shape([two if isinstance(two, int) else one for one, two in zip(old, new, strict=True)])


def infer_proto(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the types and shapes that ONNX infers without looking at the contents of tensors.

    Operators of `LIKE_INPUT` are added: onnx (1.23) infers nothing of them, and so of nothing behind them. Raises
    ModelError for what onnx cannot pass over.
    """
    inferred = _inferred(proto)
    while _type_like_inputs(inferred.graph):
        inferred = _inferred(inferred)
    return inferred


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        with readable():
            return onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=False)
    except CONTRADICTIONS as error:
        raise ModelError(f"types or shapes of the model contradict each other: {tidy(error)}") from error


def _type_like_inputs(graph: onnx.GraphProto) -> bool:
    """Give results of `LIKE_INPUT` the types of their first inputs; return whether one was learnt."""
    nodes = [node for node in graph.node if node.op_type in LIKE_INPUT and node.domain in ("", "ai.onnx")]
    if not nodes:
        return False
    known = types_of(graph)
    shaped = {name for name, kind in known.items() if kind.tensor_type.HasField("shape")}
    learnt = {
        node.output[0]: node.input[0] for node in nodes if node.input[0] in shaped and node.output[0] not in shaped
    }
    for value in [value for value in (*graph.value_info, *graph.output) if value.name in learnt]:
        value.type.CopyFrom(known[learnt[value.name]])
    for name in sorted(learnt.keys() - known.keys()):
        graph.value_info.add(name=name).type.CopyFrom(known[learnt[name]])
    return bool(learnt)


def _types_of(proto: onnx.ModelProto) -> dict[str, tuple[ir.TypeProtocol, ir.Shape]] | None:
    """Type and shape of each value of the main graph, read off the proto; None where a node's output lacks one.

    Making an `ir.Model` of the proto to look at its types takes five times as long.
    """
    known: dict[str, tuple[ir.TypeProtocol, ir.Shape]] = {}
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        tensor = value.type.tensor_type
        numbers = [dimension.dim_value for dimension in tensor.shape.dim if dimension.HasField("dim_value")]
        if tensor.elem_type and tensor.HasField("shape") and len(numbers) == len(tensor.shape.dim):
            element = ir.DataType(tensor.elem_type)
            known[value.name] = ir.TensorType(element, denotation=value.type.denotation or None), ir.Shape(numbers)
    wanted = (name for node in proto.graph.node for name in node.output if name)
    return known if all(name in known for name in wanted) else None


def _has_body(node: ir.Node) -> bool:
    return any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())


def has_unknown(model: ir.Model) -> bool:
    """Whether the output of a node has a dimension that is no number, or no shape at all."""
    return any(
        value.shape is None or not value.shape.is_static()
        for graph in all_graphs(model)
        for node in graph
        for value in node.outputs
    )


def _learn(value: ir.Value, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> bool:
    changed = False
    if kind is not None and value.type != kind:
        value.type, changed = kind, True
    if shape is not None and value.shape != shape:
        value.shape, changed = ir.Shape(shape), True
    return changed


def fix_dimensions(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]], dims: Dims) -> bool:
    """Give inputs the shapes in ``shapes``, in place, wherever the same symbol stands; return whether any changed.

    Raises ModelError for an unknown input, another rank, a number that differs, or a symbol given two values, of which
    one may be among ``dims``.
    """
    inputs = {value.name: value for value in graph.input}
    symbols: dict[str, int] = {}
    changed = False
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(f"the model has no input '{name}'; its inputs are {_quoted(inputs)}", input=name)
        known = dict(symbols)
        changed |= _fix_input(inputs[name], tuple(shape), symbols)
        for symbol in symbols.keys() - known.keys():
            check_given(dims, symbol, symbols[symbol], f"input '{name}'")
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in symbols:
                dimension.dim_value = symbols[dimension.dim_param]
    return changed


def give_rank(value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give an input that has no shape in the file the one in ``shapes``, in place."""
    if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape") and value.name in shapes:
        for number in shapes[value.name]:
            value.type.tensor_type.shape.dim.add(dim_value=number)


def _fix_input(value: onnx.ValueInfoProto, shape: tuple[int, ...], symbols: dict[str, int]) -> bool:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in shape)
    stated = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    wanted = "x".join(map(str, shape))
    agree = len(stated) == len(shape) and all(
        not isinstance(old, int) or old == new for old, new in zip(stated, shape, strict=True)
    )
    if not agree or any(dimension < 0 for dimension in shape):
        raise ModelError(
            f"input '{value.name}' has the shape {'x'.join(map(str, stated))}, which {wanted} does not fit",
            input=value.name,
        )
    changed = False
    for dimension, number in zip(tensor.shape.dim, shape, strict=True):
        symbol = dimension.dim_param
        if symbol and symbols.setdefault(symbol, number) != number:
            raise ModelError(
                f"dimension '{symbol}' is given two values, {symbols[symbol]} and {number} (input '{value.name}')",
                dimension=symbol,
            )
        changed |= not dimension.HasField("dim_value")
        dimension.dim_value = number
    return changed


def require_static(model: ir.Model) -> None:
    """Raise ModelError if a dimension of an input is no number, saying how to give it one."""
    unknown = [value for value in map(ValueView, model.graph.inputs) if value.dtype and value.static_shape is None]
    if not unknown:
        return
    inputs = ", ".join(f"'{value.name}' {_show(value)}" for value in unknown)
    python, options = shape_spelled({value.name: _example(value) for value in unknown})
    raise ModelError(
        f"the shape of input {inputs} is not fixed; give every dimension a number, as in {python}",
        spelled={python: options},
        inputs=tuple(value.name for value in unknown),
    )


def shape_spelled(shapes: Mapping[str, str]) -> tuple[str, str]:
    """Return how shapes such as ``1x3`` are given by name: to a Python function, and on the command line."""
    tuples = {name: shape.replace("x", ", ") + ("" if "x" in shape else ",") for name, shape in shapes.items()}
    rows = ", ".join(f'"{name}": ({shape})' for name, shape in tuples.items())
    return f"shapes={{{rows}}}", " ".join(f"--shape {name}:{shape}" for name, shape in shapes.items())


def _show(value: ValueView) -> str:
    dimensions = "..." if value.shape is None else ",".join("?" if d is None else str(d) for d in value.shape)
    return f"{value.dtype}[{dimensions}]"


def _example(value: ValueView) -> str:
    """Return a shape to try: numbers as stated, 1 for an unknown batch, usual image sizes behind it."""
    if value.shape is None:
        return "1x3x224x224"
    usual = (1, 3, 224, 224) if len(value.shape) == 4 else (1, *[128] * 8)
    pairs = zip(value.shape, usual, strict=False)
    return "x".join(str(stated if isinstance(stated, int) else guess) for stated, guess in pairs)


def _quoted(names: Mapping[str, object]) -> str:
    return ", ".join(f"'{name}'" for name in names)
