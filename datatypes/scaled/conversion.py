"""Models in scaled types: products with constant weights, their weights encoded once, their activations as they come.

A product of activations and constants becomes an Encode of the activations, along the axis that is summed over, and a
MatMul of `graft.datatypes.scaled.matmul`. Blocks of a convolution run along its channels, each position of the kernel
and each group of channels beginning a new one: activations are encoded once, and codes are gathered by window, its
positions in row-major order. A group of fewer channels than a block has makes a block of these alone.
Everything else stays in float32, biases among it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView, constant_tensor, data_type
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.operators.definition.table import Trait
from graft.core.operators.images.windows import windows_of
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.passes.normalize import normalize
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import (
    add_constant,
    attribute_of,
    constant_of,
    hand_over,
    has_trait,
    image_shape,
    is_operator,
    static_shape,
)
from graft.core.shapes.inference import infer_shapes
from graft.core.tensor_ir.anchors import Windows
from graft.core.types import storage_dtype
from graft.datatypes.conversion import matches, require_patterns
from graft.datatypes.rounding import ROUNDINGS, Rounding
from graft.datatypes.scaled.blocks import TYPE, ScaledArray, encode_scaled
from graft.datatypes.scaled.operators import DOMAIN, attributes_of
from graft.datatypes.scaled.products import FLOAT32, sums_format
from graft.datatypes.scaled.scaled_type import ScaledType, scaled_type
from graft.errors import DatatypeError
from graft.runtime.arguments import COUNTER, TEXT, TEXTS, either, optional, takes

Dimensions = list[int | ir.SymbolicDim] | None
"""The extents of a value, as far as they are known."""


@takes(
    model=SOURCE, type=TYPE, weights=optional(TYPE), keep=TEXTS, accumulate=TEXT, rounding=either(*ROUNDINGS),
    seed=COUNTER,
)  # fmt: skip
def convert_scaled(
    model: Source,
    type: ScaledType | str,
    *,
    weights: ScaledType | str | None = None,
    keep: Sequence[str] = (),
    depthwise: bool = False,
    accumulate: str = FLOAT32,
    rounding: Rounding = "nearest",
    seed: int = 0,
) -> ir.Model:
    """Return the model with products of activations and constants computed in scaled types: MatMul, Gemm and Conv.

    ``type`` is that of activations, and of
    ``weights`` unless these have their own, with blocks of the same size. ``keep`` are patterns of names or operators
    of nodes that stay. So do convolutions of one channel a group unless ``depthwise``: their blocks are of one number,
    which the rule of the specification clips. ``rounding`` and ``seed`` are those of activations; weights are rounded
    to nearest. ``accumulate`` is the type that blocks are added in, as for `matmul_scaled`. A type whose tensors have a
    scale takes it from the data for weights; activations have 1. Raises
    DatatypeError for blocks of different sizes or of none, and where no product is found.
    """
    own = [scaled_type(one) if isinstance(one, str) else one for one in (type, weights or type)]
    if own[0].block != own[1].block or own[0].block is None:
        sizes = " and ".join(str(one.block or "none") for one in own)
        raise DatatypeError(f"activations and weights have blocks of one size, not {sizes}")
    converted = load(model).clone()
    normalize(converted)
    require_patterns(keep, converted)
    sums_format(accumulate)  # which refuses what is no type of sums
    writer = _Writer(converted, own[0], own[1], {"rounding": rounding, "seed": seed}, accumulate)
    found = [node for node in converted.graph if not any(matches(node, pattern) for pattern in keep)]
    found = [node for node in found if _is_product(node) and (depthwise or not is_depthwise(node))]
    for node in found:
        writer.convert(node)
    if not found:
        raise DatatypeError(
            f"model '{converted.graph.name}' has no MatMul, Gemm or convolution of float32 with constant weights to "
            "convert"
        )
    EliminateDeadCode().run(converted)
    converted.graph.opset_imports[DOMAIN] = 1
    infer_shapes(converted)  # of ONNX's operators between those here, whose shapes are said
    return converted


def _is_product(node: ir.Node) -> bool:
    """Whether a node multiplies activations in float32 by a constant matrix, or convolves them."""
    if _form_of(node) is None:
        return False
    x, weights = node.inputs[:2]
    tensor = None if weights is None else constant_tensor(weights)
    if x is None or tensor is None or tensor.dtype != ir.DataType.FLOAT or constant_tensor(x) is not None:
        return False
    if has_trait(node, Trait.CONVOLUTION):
        return image_shape(x) is not None
    return len(tensor.shape) == 2 and (ValueView(x).rank or 0) > 0


def is_depthwise(node: ir.Node) -> bool:
    """Whether a convolution has groups of one channel each."""
    shape = static_shape(node.inputs[1])
    return (
        has_trait(node, Trait.CONVOLUTION)
        and attribute_of(node, "group", 1) > 1
        and shape is not None
        and shape[1] == 1
    )


class _Writer:
    """Writes products in scaled types before a node, and lets the last of them take its place."""

    def __init__(
        self, model: ir.Model, type: ScaledType, weights: ScaledType, options: dict[str, Any], accumulate: str
    ) -> None:
        self._graph, self._names = model.graph, Names(model)
        self._sums = {} if accumulate == FLOAT32 else {"accumulate": accumulate}
        self._type, self._weights, self._options = type, weights, options
        self._node = next(iter(model.graph))

    def convert(self, node: ir.Node) -> None:
        """Put a product in scaled types in the place of a node; what makes its result keeps its name."""
        self._node = node
        form = _form_of(node)
        assert form is not None, node.name
        made = form(self)
        last, output = made.producer(), node.outputs[0]
        assert last is not None, node.name
        made.type, made.shape = output.type, output.shape
        hand_over(output, made)
        self._graph.remove(node, safe=True)
        last.name = node.name

    def matmul(self) -> ir.Value:
        """Return the product by a constant matrix."""
        x, weights = self._operands()
        shape = None if x.shape is None else list(x.shape)
        return self._product(*self._encoded(x, shape, self._type), encode_scaled(weights, self._weights, axis=0), shape)

    def gemm(self) -> ir.Value:
        """Return the product, times alpha, with what is added, times beta."""
        x, weights = self._operands()
        shape = None if x.shape is None else list(x.shape)
        if attribute_of(self._node, "transA", 0):
            x, shape = self._add("Transpose", x, perm=[1, 0]), shape and shape[::-1]
        weights = weights.T if attribute_of(self._node, "transB", 0) else weights
        made = self._product(*self._encoded(x, shape, self._type), encode_scaled(weights, self._weights, axis=0), shape)
        made = self._times(made, attribute_of(self._node, "alpha", 1.0))
        bias = self._node.inputs[2] if len(self._node.inputs) > 2 else None
        return (
            made if bias is None else self._add("Add", made, self._times(bias, attribute_of(self._node, "beta", 1.0)))
        )

    def conv(self) -> ir.Value:
        """Return the product of windows, channels last, as ONNX orders it, with its bias."""
        x, weights = self._operands()
        shape, rank = image_shape(x), weights.ndim - 2
        assert shape is not None and self._type.block is not None, self._node.name
        kernel, channels, groups = weights.shape[2:], weights.shape[1], int(attribute_of(self._node, "group", 1))
        spatial = shape[1][1:]
        strides = attribute_of(self._node, "strides", [1] * rank)
        target = [-(-extent // stride) for extent, stride in zip(spatial, strides, strict=True)]
        windows = windows_of(NodeView(self._node), spatial, kernel, target)
        last = self._add("Transpose", x, perm=[0, *range(2, 2 + rank), 1])
        own = [groups, channels] if groups > 1 else [channels]
        if groups > 1:
            last = self._add("Reshape", last, self._constant("shape", np.array([0, *spatial, *own], np.int64)))
        types = [replace(one, block=min(channels, self._type.block)) for one in (self._type, self._weights)]
        filling = -channels % types[0].block if math.prod(kernel) > 1 else 0
        codes = [
            self._windows(one, windows, spatial, len(own), behind)
            for one, behind in zip(self._encoded(last, [shape[0], *spatial, *own], types[0]), (filling, 0), strict=True)
        ]
        matrix = weights.reshape(groups, -1, *weights.shape[1:])
        matrix = np.pad(np.moveaxis(matrix, (1, 2), (-1, -2)), [(0, 0)] * (1 + rank) + [(0, filling), (0, 0)])
        matrix = matrix.reshape(*own[:-1], -1, len(weights) // groups)
        counts = [len(_starts(windows, d, spatial[d])) for d in range(rank)]
        whole = [shape[0], *counts, *own[:-1], matrix.shape[-2]]
        made = self._product(codes[0], codes[1], encode_scaled(matrix, types[1], axis=-2), whole)
        if groups > 1:
            made = self._add("Reshape", made, self._constant("shape", np.array([0, *counts, len(weights)], np.int64)))
        made = self._add("Transpose", made, perm=[0, rank + 1, *range(1, rank + 1)])
        bias = self._node.inputs[2] if len(self._node.inputs) > 2 else None
        if bias is None:
            return made
        rows = self._constant("shape", np.array([-1, *[1] * rank], np.int64))
        return self._add("Add", made, self._add("Reshape", bias, rows))

    def _windows(self, codes: ir.Value, windows: Windows, spatial: Sequence[int], own: int, filling: int) -> ir.Value:
        """Return codes ``[batch, spatial, channels]`` by window: for each position of the kernel, its channels.

        ``own`` is 2 for channels by group: ``[batch, spatial, groups, channels]``, of which each has windows.

        A border is of zeros under the scale of code 0, and so are ``filling`` channels behind.
        """
        pads = [0, *windows.begins, *[0] * own, 0, *windows.ends, *[0] * (own - 1), filling]
        if any(pads):
            codes = self._add("Pad", codes, self._constant("pads", np.array(pads, np.int64)))
        rank, counts = windows.rank, []
        for d in range(rank):  # an axis becomes two: that of windows, and that of the kernel
            first = _starts(windows, d, spatial[d])
            counts.append(len(first))
            places = first[:, np.newaxis] + np.arange(windows.kernel[d]) * windows.dilations[d]
            codes = self._add("Gather", codes, self._constant("places", places), axis=1 + 2 * d)
        groups = range(1 + 2 * rank, own + 2 * rank)
        order = [0, *range(1, 1 + 2 * rank, 2), *groups, *range(2, 2 + 2 * rank, 2), own + 2 * rank]
        codes = self._add("Transpose", codes, perm=order)
        return self._add(
            "Reshape", codes, self._constant("shape", np.array([0, *counts, *[0] * (own - 1), -1], np.int64))
        )

    def _operands(self) -> tuple[ir.Value, np.ndarray]:
        x, weights = self._node.inputs[0], constant_of(self._node.inputs[1])
        assert x is not None and weights is not None, self._node.name
        return x, weights

    def _times(self, value: ir.Value, factor: float) -> ir.Value:
        return value if factor == 1.0 else self._add("Mul", value, self._constant("factor", np.float32(factor)))

    def _encoded(self, x: ir.Value, shape: Dimensions, type: ScaledType) -> tuple[ir.Value, ir.Value]:
        """Return elements and scales of activations of a shape, blocks along their last axis."""
        given = [x, self._constant("scale", np.float32(1))] if type.tensor_scale else [x]
        own = {**attributes_of(type), "axis": -1, **self._options}
        elements, scales = self._made("Encode", given, own, ("elements", "scales"), DOMAIN)
        for value, kind in ((elements, type.element), (scales, type.scale)):
            value.type = ir.TensorType(data_type(storage_dtype(kind)))
        if shape is not None and isinstance(shape[-1], int) and type.block is not None:
            elements.shape = ir.Shape(shape)
            scales.shape = ir.Shape([*shape[:-1], -(-shape[-1] // type.block)])
        return elements, scales

    def _product(self, elements: ir.Value, scales: ir.Value, weights: ScaledArray, shape: Dimensions) -> ir.Value:
        """Return the MatMul of codes, of a shape, and constant codes."""
        inputs = [elements, scales, self._constant("weights", weights.elements)]
        inputs.append(self._constant("weight_scales", weights.scales))
        if self._type.tensor_scale or weights.type.tensor_scale:
            both = (1, weights.tensor_scale)
            names = ("left_scale", "right_scale")
            inputs += [self._constant(name, np.float32(one)) for name, one in zip(names, both, strict=True)]
        sides = (("left", self._type), ("right", weights.type))
        own: dict[str, Any] = {
            f"{side}_{field}": getattr(one, field) for side, one in sides for field in ("element", "scale")
        }
        own = {**own, "block": weights.type.block, **self._sums}
        (made,) = self._made("MatMul", inputs, own, ("product",), DOMAIN)
        made.type = ir.TensorType(ir.DataType.FLOAT)
        made.shape = None if shape is None else ir.Shape([*shape[:-1], weights.elements.shape[-1]])
        return made

    def _add(self, operator: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """Return the result of one of ONNX's operators, of the type of its first input."""
        (made,) = self._made(operator, list(inputs), attributes, (operator.lower(),))
        made.type = inputs[0].type
        return made

    def _made(
        self, operator: str, inputs: list[ir.Value], own: dict[str, Any], names: Sequence[str], domain: str = ""
    ) -> list[ir.Value]:
        stem = self._node.name or self._node.op_type
        outputs = [ir.Value(name=self._names.fresh(f"{stem}_{name}")) for name in names]
        name = self._names.fresh(f"{stem}_{operator.lower()}")
        self._graph.insert_before(self._node, ir.node(operator, inputs, own, domain=domain, outputs=outputs, name=name))
        return outputs

    def _constant(self, name: str, array: np.ndarray | np.generic) -> ir.Value:
        stem = self._node.name or self._node.op_type
        return add_constant(self._graph, self._names.fresh(f"{stem}_{name}"), np.asarray(array))


def _starts(windows: Windows, d: int, extent: int) -> np.ndarray:
    """Return where the windows of an axis begin, in the axis with its border."""
    reach = (windows.kernel[d] - 1) * windows.dilations[d]
    return np.arange(0, windows.begins[d] + extent + windows.ends[d] - reach, windows.strides[d])


def _form_of(node: ir.Node) -> Callable[[_Writer], ir.Value] | None:
    """Return what writes a product in scaled types; None for other nodes."""
    if is_operator(node, "MatMul"):
        return _Writer.matmul
    if is_operator(node, "Gemm"):
        return _Writer.gemm
    return _Writer.conv if has_trait(node, Trait.CONVOLUTION) else None
