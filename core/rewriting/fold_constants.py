"""Nodes whose result is known at compile time become initialisers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir
from numpy.lib.array_utils import byte_bounds
from onnx.reference import ReferenceEvaluator

from graft.core.graph.view import NodeView, constant_tensor
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import Facts
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import attribute_of, constant_of, has_trait, is_operator, origin_of, static_shape

SCALAR_WORK = frozenset({
    "Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast",
    "CastLike", "Ceil", "Clip", "Compress", "ConstantOfShape", "Cos", "CumSum", "DequantizeLinear", "Div", "Equal",
    "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg",
    "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "QuantizeLinear", "Range", "Reciprocal", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "ScatterElements", "ScatterND", "Shape",
    "Sigmoid", "Sign", "Sin", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile", "Transpose",
    "Trilu", "Unsqueeze", "Where", "Xor",
})  # fmt: skip
SCALAR_TRAITS = (Trait.DISTRIBUTION, Trait.JOINING)
"""Operators, by name and by trait, whose work is about the number of elements that they read and write."""
PRODUCTS = frozenset({"MatMul", "Gemm"})
MOST_MULTIPLICATIONS = 1 << 26
GROWTH = 4
"""How many times as large as what it is computed from a result may be, beyond the limit: four numbers share a byte."""
COLUMNS = 16
"""Weights stay narrow for products whose columns are a multiple of the lanes of any vector."""
WIDE = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, Warning)
"""What `onnx.reference` raises for a node that cannot be computed; such a node stays and fails where it runs."""


@dataclass(frozen=True)
class FoldConstants(NodePass):
    """Compute nodes whose inputs are all constant, by `onnx.reference`.

    1. Shape and Size of a value whose shape is known
    2. operators of bounded work (`SCALAR_WORK`, `SCALAR_TRAITS`, and small `PRODUCTS`) with constant inputs

    A result is folded only if its size is known beforehand: at most ``limit`` bytes, or `GROWTH` times those of the
    constants that it is computed from (bytes that hold several numbers are unpacked). All that one run folds, less
    what is read no longer and goes, is at most ``total`` bytes, and as many as the model's constants have. So nothing
    that a model says makes the compiler use more memory than that. DequantizeLinear stays unless ``dequantize`` is
    set: backends look for quantised weights.
    """

    name: ClassVar[str] = "fold-constants"
    limit: int = 64 << 20
    total: int = 128 << 20
    dequantize: bool = False

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        graph = node.graph
        if not isinstance(graph, ir.Graph) or not (has_trait(node, Trait.SHAPE_ONLY) or _reads_constants(node)):
            return False
        if is_operator(node, "DequantizeLinear") and (not self.dequantize or widens_weights(node)):
            return False
        size = _result_bytes(node)
        if size is None or any(value.is_graph_output() for value in node.outputs):
            return False
        if size > self.total + rewriter.constant_bytes - rewriter.added_bytes:
            return False
        results = _shape_of(node)
        if results is None and _is_foldable(node, size, self.limit):
            results = _compute(node, rewriter.opsets)
        if results is None:
            return False
        read = {value for value in node.inputs if value is not None}
        put_constants(graph, node, results)
        rewriter.added_bytes += sum(result.nbytes for result in results) - sum(map(_given_up, read))
        return True


def _given_up(value: ir.Value) -> int:
    """Remove a constant that nobody reads any more; return its bytes, 0 for any other value."""
    graph, tensor = value.graph, value.const_value
    is_own = isinstance(graph, ir.Graph) and graph.initializers.get(value.name or "") is value
    if tensor is None or not is_own or value.uses() or value.is_graph_input() or value.is_graph_output():
        return 0
    assert isinstance(graph, ir.Graph) and value.name, value
    del graph.initializers[value.name]
    return tensor.nbytes


def widens_weights(node: ir.Node, most: int | None = None) -> bool:
    """Whether a node widens constants for products, of at most so many rows (None: any), which read them as they are.

    The constants are K-major matrices of bytes, with scales for blocks of terms, for columns, or for all of them.
    """
    if not is_operator(node, "DequantizeLinear") or any(value.is_graph_output() for value in node.outputs):
        return False
    source, scale = (static_shape(value) for value in node.inputs[:2])
    if source is None or scale is None or len(source) != 2 or source[1] % COLUMNS:
        return False
    if not all(value is None or constant_tensor(value) is not None for value in node.inputs):
        return False
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype not in (ir.DataType.UINT8, ir.DataType.INT8) or node.outputs[0].dtype not in WIDE:
        return False
    uses = node.outputs[0].uses()
    return _is_by_blocks(node, source, scale) and bool(uses) and all(_is_product(*use, most) for use in uses)


def _is_by_blocks(node: ir.Node, source: tuple[int, ...], scale: tuple[int, ...]) -> bool:
    """Whether all terms of a block, or of a column, have one scale."""
    axis, block = attribute_of(node, "axis", 1) % 2, attribute_of(node, "block_size", 0)
    if len(scale) == 2:
        return bool(axis == 0 and block > 1 and source[0] % block == 0)
    return math.prod(scale) == 1 or bool(axis == 1)


def _is_product(node: ir.Node, number: int, most: int | None) -> bool:
    """Whether a node is a product of few rows with what its input of this number is on the right."""
    if not is_operator(node, "MatMul", "Gemm") or number != 1:
        return False
    if attribute_of(node, "transA", 0) or attribute_of(node, "transB", 0):
        return False
    rows = static_shape(node.inputs[0])
    return most is None or (rows is not None and math.prod(rows[:-1]) <= most)


def _result_bytes(node: ir.Node) -> int | None:
    """Return the bytes of all outputs of a node, None where a type or a dimension is not known."""
    if is_operator(node, "NonZero") and (source := static_shape(node.inputs[0])) is not None:
        return 8 * len(source) * math.prod(source)
    size = 0
    for value in node.outputs:
        shape = static_shape(value)
        if not value.name or shape is None or value.dtype is None or value.dtype is ir.DataType.STRING:
            return None
        size += math.prod(shape) * max(value.dtype.bitwidth, 8) // 8
    return size


def _shape_of(node: ir.Node) -> list[np.ndarray] | None:
    """Return the result of a node that reads only the shape of its input, where that is known (case 1)."""
    row = OPERATORS.of(view := NodeView(node))
    if row is None or Trait.SHAPE_ONLY not in row.traits or row.contents is None:
        return None
    shape = static_shape(node.inputs[0])
    found = None if shape is None else row.contents(Facts(view, [shape], [None]))
    return None if found is None else [np.array(found.elements, np.int64).reshape(found.shape)]


def _is_foldable(node: ir.Node, size: int, limit: int) -> bool:
    """Whether a node is cheap, its inputs are constant, and its ``size`` bytes are allowed (case 2)."""
    is_scalar = is_operator(node, *SCALAR_WORK) or any(has_trait(node, trait) for trait in SCALAR_TRAITS)
    if not (is_scalar or (is_operator(node, *PRODUCTS) and _multiplications(node))):
        return False
    tensors = [constant_tensor(value) for value in node.inputs if value is not None]
    known = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    return _reads_constants(node) and size <= max(limit, GROWTH * known)


def _reads_constants(node: ir.Node) -> bool:
    """Whether all inputs of a node are constant."""
    return all(value is None or constant_tensor(value) is not None for value in node.inputs)


def _multiplications(node: ir.Node) -> bool:
    """Whether a product needs no more than `MOST_MULTIPLICATIONS`."""
    left, output = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    if not left or output is None:
        return False
    inner = left[0] if node.op_type == "Gemm" and attribute_of(node, "transA", 0) else left[-1]
    return math.prod(output) * inner <= MOST_MULTIPLICATIONS


def _compute(node: ir.Node, opsets: Mapping[str, int]) -> list[np.ndarray] | None:
    """Return the results of a node with constant inputs, None where it cannot be computed."""
    if (moved := _moved(node)) is not None:
        return [moved]
    feeds = {value.name or "": constant_of(value) for value in node.inputs if value is not None}
    try:
        with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
            warnings.simplefilter("error")
            evaluator = ReferenceEvaluator(ir.to_proto(node), opsets={"": 1, **opsets})
            results = [np.asarray(result) for result in evaluator.run(None, feeds)]
    except FAILURES:
        return None
    agree = all(
        value.dtype is not None and result.dtype == value.dtype.numpy() and static_shape(value) in (None, result.shape)
        for value, result in zip(node.outputs, results, strict=True)
    )
    return results if agree else None


def _moved(node: ir.Node) -> np.ndarray | None:
    """The result of a node that fills its output, or moves to it, by the inferred type: `onnx.reference` is slow."""
    output = node.outputs[0]
    shape, dtype = static_shape(output), output.dtype
    if shape is None or dtype is None:
        return None
    if is_operator(node, "ConstantOfShape"):
        filler = attribute_of(node, "value", None)
        value = np.zeros(1, np.float32) if filler is None else filler.numpy()
        stated = constant_of(node.inputs[0])
        agrees = stated is not None and tuple(stated) == shape and value.size == 1
        return np.full(shape, value.reshape(())) if agrees and value.dtype == dtype.numpy() else None
    source = constant_of(node.inputs[0]) if is_operator(node, "Squeeze", "Unsqueeze", "Transpose") else None
    if source is None or source.size != math.prod(shape) or source.dtype != dtype.numpy():
        return None
    if not is_operator(node, "Transpose"):
        return source.reshape(shape)
    order = attribute_of(node, "perm", tuple(reversed(range(source.ndim))))
    return source.transpose(order) if sorted(order) == [*range(source.ndim)] else None


def put_constants(graph: ir.Graph, node: ir.Node, results: Sequence[np.ndarray]) -> None:
    """Put initialisers of the same names in the place of a node's outputs.

    One whose axes are another constant's in another order stays a view of it: who packs it, moves it once.
    """
    for old, array in zip(node.outputs, results, strict=True):
        name = old.name or ""
        low, high = byte_bounds(array)
        dense = array if high - low == array.nbytes else np.ascontiguousarray(array).reshape(array.shape)
        tensor = ir.Tensor(dense, dtype=old.dtype, name=name)
        new = ir.Value(name=name, shape=ir.Shape(array.shape), type=old.type, const_value=tensor)
        new.metadata_props.update(origin_of(node))
        ir.convenience.replace_all_uses_with(old, new)
        old.name = f"{name}_folded"
        graph.initializers.add(new)
    graph.remove(node, safe=True)
