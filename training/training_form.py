"""The form of a model in which it is trained: by the statistics of its batch, with Dropout, with products rounded."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper, numpy_helper

from graft.core.graph.protos import constants_of, put_nodes, types_of
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.training.editing import Writer

DRAW = "draw"
"""The input by which Dropout draws anew: int64, the number of batches so far."""
PRODUCTS = frozenset({Trait.CONTRACTION, Trait.CONVOLUTION})
_MIX = ((16, 0x7FEB352D), (15, 0x846CA68B))
"""Shifts and factors of C. Wellons' hash of 32 bits (lowbias32), which ends with another shift by 16."""


def train_statistics(graph: onnx.GraphProto) -> dict[str, str]:
    """Let each BatchNormalization take the statistics of its batch, in place; return the new ones by the old.

    The new ones are outputs of the graph. Statistics that nodes share, or that are computed, stay as they are; so does
    what is in training already.
    """
    constants = types_of(graph)
    constants = {one.name: constants[one.name] for one in (*graph.initializer, *graph.input)}
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type != "BatchNormalization" or len(node.input) != 5:
            continue
        given = list(node.input[3:5])
        if any(one.name == "training_mode" and one.i for one in node.attribute):
            continue
        if not constants.keys() >= set(given) or not found.keys().isdisjoint(given):
            continue
        del node.output[1:]
        for name in given:
            found[name] = f"{name}_next"
            node.output.append(found[name])
            graph.output.append(helper.make_value_info(found[name], constants[name]))
        node.attribute.append(helper.make_attribute("training_mode", 1))
    return found


def drop(graph: onnx.GraphProto, seed: int) -> bool:
    """Let each Dropout of a known ratio drop elements, in place; return whether there is one.

    An element is dropped by a hash of its place, of seed and node, and of the input `DRAW`: by nothing else, so that
    the same are dropped whatever the number of threads, and when a value is computed again.
    """
    constants, types, made, count = constants_of(graph), types_of(graph), onnx.GraphProto(), 0
    for node in graph.node:
        ratio = _ratio(node, constants)
        if ratio is None:
            made.node.append(node)
            continue
        x, count = node.input[0], count + 1
        f = Writer(made, f"{node.name or node.output[0]}/drop", TensorProto.UINT32)
        start = f("Cast", DRAW, to=TensorProto.UINT32)
        key = _mixed(f, f("Add", _mixed(f, f("Add", start, f.number(seed))), f.number(count)))
        zero, one = (f.number(value, TensorProto.INT64) for value in (0, 1))
        place = f("Reshape", f("Range", zero, f("Size", x), one), f("Shape", x))
        bits = _mixed(f, f("Add", f("Cast", place, to=TensorProto.UINT32), key))
        kept = f("GreaterOrEqual", bits, f.number(min(round(ratio * 2**32), 2**32 - 1)))
        kind = types[x].tensor_type.elem_type
        scaled = f("Mul", x, f.number(1 / (1 - ratio) if ratio < 1 else 0.0, kind))
        made.node.append(helper.make_node("Where", [kept, scaled, f.number(0.0, kind)], [node.output[0]], node.name))
        if len(node.output) > 1 and node.output[1]:
            made.node.append(helper.make_node("Identity", [kept], [node.output[1]]))
    put_nodes(graph, made.node)
    if count:
        graph.input.append(helper.make_tensor_value_info(DRAW, TensorProto.INT64, []))
    return count > 0


def _ratio(node: onnx.NodeProto, constants: Mapping[str, TensorProto]) -> float | None:
    """Return the share of elements that a Dropout drops in training; None where it drops none, or it is computed."""
    if node.op_type != "Dropout" or node.domain:
        return None
    name = node.input[1] if len(node.input) > 1 else ""
    if name and name not in constants:
        return None
    ratio = float(numpy_helper.to_array(constants[name])) if name else 0.5
    return ratio if ratio > 0 else None


def _mixed(f: Writer, bits: str) -> str:
    for shift, factor in _MIX:
        bits = f("BitwiseXor", bits, f("BitShift", bits, f.number(shift), direction="RIGHT"))
        bits = f("Mul", bits, f.number(factor))
    return f("BitwiseXor", bits, f("BitShift", bits, f.number(16), direction="RIGHT"))


def round_products(graph: onnx.GraphProto, dtype: int) -> None:
    """Let matrix products and convolutions of float32 take and give numbers of a narrower type, in place.

    Weights stay float32, what is between products, too; the gradients of products are products of the narrow type.
    """
    types, nodes = types_of(graph), []
    for node in graph.node:
        operator = OPERATORS.get(node.op_type, node.domain)
        of_floats = [name for name in (*node.input, *node.output) if name and _is_float(types, name)]
        if operator is None or not operator.traits & PRODUCTS or len(of_floats) < len(node.input) + 1:
            nodes.append(node)
            continue
        stem = node.name or node.output[0]
        result = node.output[0]
        for place, name in enumerate(node.input):
            node.input[place] = f"{stem}/{place}/narrow"
            nodes.append(helper.make_node("Cast", [name], [node.input[place]], node.input[place], to=dtype))
        node.output[0] = f"{stem}/narrow"
        nodes += [node, helper.make_node("Cast", [node.output[0]], [result], f"{stem}/wide", to=TensorProto.FLOAT)]
    put_nodes(graph, nodes)


def _is_float(types: Mapping[str, onnx.TypeProto], name: str) -> bool:
    return name in types and types[name].tensor_type.elem_type == TensorProto.FLOAT


def tie(graph: onnx.GraphProto, tied: Mapping[str, str]) -> None:
    """Let nodes read one weight where they read another, in place."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = tied.get(name, name)
    for tensor in [one for one in graph.initializer if one.name in tied]:
        graph.initializer.remove(tensor)
    for value in [one for one in graph.input if one.name in tied]:
        graph.input.remove(value)
