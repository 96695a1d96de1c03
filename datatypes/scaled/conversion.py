"""Models in scaled types: products with constant weights, their weights encoded once, their activations as they come.

A MatMul of activations and a constant matrix becomes an Encode of the activations, along the axis that is summed over,
and a MatMul of `graft.datatypes.scaled.matmul`. Everything else stays in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import ValueView, constant_tensor, data_type
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.passes.normalize import normalize
from graft.core.rewriting.node_pass import Names
from graft.core.types import storage_dtype
from graft.datatypes.conversion import matches, require_patterns
from graft.datatypes.rounding import ROUNDINGS, Rounding
from graft.datatypes.scaled.blocks import TYPE, ScaledArray, encode_scaled
from graft.datatypes.scaled.operators import DOMAIN, attributes_of
from graft.datatypes.scaled.scaled_type import ScaledType, scaled_type
from graft.errors import DatatypeError
from graft.runtime.arguments import COUNTER, TEXTS, either, optional, takes


@takes(model=SOURCE, type=TYPE, weights=optional(TYPE), keep=TEXTS, rounding=either(*ROUNDINGS), seed=COUNTER)
def convert_scaled(
    model: Source,
    type: ScaledType | str,
    *,
    weights: ScaledType | str | None = None,
    keep: Sequence[str] = (),
    rounding: Rounding = "nearest",
    seed: int = 0,
) -> ir.Model:
    """Return the model with every product of activations and a constant matrix computed in scaled types.

    ``type`` is that of activations, and of ``weights`` unless these have their own, with blocks of the same size.
    ``keep`` are patterns of names or operators of nodes that stay. ``rounding`` and ``seed`` are those of activations;
    weights are rounded to nearest. A type whose tensors have a scale takes it from the data for weights; activations
    have 1. Raises DatatypeError for blocks of different sizes or of none, and where no product is found.
    """
    own = [scaled_type(one) if isinstance(one, str) else one for one in (type, weights or type)]
    if own[0].block != own[1].block or own[0].block is None:
        sizes = " and ".join(str(one.block or "none") for one in own)
        raise DatatypeError(f"activations and weights have blocks of one size, not {sizes}")
    converted = load(model).clone()
    normalize(converted)
    require_patterns(keep, converted)
    names, found = Names(converted), 0
    for node in list(converted.graph):
        matrix = _weights(node)
        if matrix is not None and not any(matches(node, pattern) for pattern in keep):
            encoded = encode_scaled(matrix, own[1], axis=0)
            _convert(converted.graph, node, own[0], encoded, names, {"rounding": rounding, "seed": seed})
            found += 1
    if not found:
        raise DatatypeError(
            f"model '{converted.graph.name}' has no MatMul of float32 with a constant matrix to convert"
        )
    converted.graph.opset_imports[DOMAIN] = 1
    return converted


def _weights(node: ir.Node) -> np.ndarray | None:
    """Return the constant matrix of a product in float32, None for any other node."""
    if (node.domain, node.op_type) not in (("", "MatMul"), ("ai.onnx", "MatMul")) or node.inputs[1] is None:
        return None
    tensor = constant_tensor(node.inputs[1])
    if tensor is None or len(tensor.shape) != 2 or tensor.dtype != ir.DataType.FLOAT:
        return None
    x = node.inputs[0]
    return tensor.numpy() if x is not None and (ValueView(x).rank or 0) > 0 else None


def _convert(
    graph: ir.Graph, node: ir.Node, type: ScaledType, weights: ScaledArray, names: Names, options: dict[str, Any]
) -> None:
    """Put an Encode before a MatMul and make it one of scaled types."""
    x, stem = node.inputs[0], node.name or "MatMul"
    assert x is not None and type.block is not None, stem

    def constant(name: str, array: np.ndarray | np.float32) -> ir.Value:
        tensor = ir.tensor(np.asarray(array), name=names.fresh(f"{stem}_{name}"))
        value = ir.Value(
            name=tensor.name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        graph.initializers.add(value)
        return value

    blocks = -(-weights.elements.shape[0] // type.block)
    shapes = [None, None] if x.shape is None else [ir.Shape(x.shape), ir.Shape([*list(x.shape)[:-1], blocks])]
    encoded = [
        ir.Value(name=names.fresh(f"{stem}_{name}"), type=ir.TensorType(data_type(storage_dtype(kind))), shape=shape)
        for name, kind, shape in zip(("elements", "scales"), (type.element, type.scale), shapes, strict=True)
    ]
    given = [x, constant("scale", np.float32(1))] if type.tensor_scale else [x]
    own = {**attributes_of(type), "axis": -1, **options}
    graph.insert_before(
        node, ir.node("Encode", given, own, domain=DOMAIN, outputs=encoded, name=names.fresh(f"{stem}_encode"))
    )
    inputs = [*encoded, constant("weights", weights.elements), constant("weight_scales", weights.scales)]
    if type.tensor_scale or weights.type.tensor_scale:
        inputs += [constant("left_scale", np.float32(1)), constant("right_scale", np.float32(weights.tensor_scale))]
    node.resize_inputs(len(inputs))
    for place, value in enumerate(inputs):
        node.replace_input_with(place, value)
    node.domain, node.version = DOMAIN, None
    for side, one in (("left", type), ("right", weights.type)):
        for field in ("element", "scale"):
            node.attributes[f"{side}_{field}"] = ir.AttrString(f"{side}_{field}", getattr(one, field))
    node.attributes["block"] = ir.AttrInt64("block", type.block)
