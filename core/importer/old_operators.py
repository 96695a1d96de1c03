"""Operators whose meaning onnx's version converter loses, and training: set apart before it, or mended after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graft.core.graph.protos import canonical, constants_of, every_graph, fault_of
from graft.core.operators.functions.legacy import EXPERIMENTAL, LEGACY


def name_old(proto: onnx.ModelProto, opset: int) -> list[str]:
    """Put operators that the converter and the checker know otherwise in `LEGACY`, in place; return which."""
    names: dict[str, None] = {}
    own = {function.name for function in proto.functions if not canonical(function.domain)}
    for graph in every_graph(proto.graph):
        for node in graph.node:
            if not node.domain and node.op_type not in own and _is_old(node, opset):
                node.domain = LEGACY
                names[node.op_type] = None
    if names:
        proto.opset_import.add(domain=LEGACY, version=1)
        _drop_unread_statistics(proto)
    return list(names)


def _is_old(node: onnx.NodeProto, opset: int) -> bool:
    match node.op_type:
        case "BatchNormalization":
            is_spatial = all(one.i for one in node.attribute if one.name == "spatial")
            trains = any(one.i for one in node.attribute if one.name == "training_mode")
            return trains or (7 <= opset < 14 and len(node.output) > 1) or (opset < 9 and not is_spatial)
        case "GroupNormalization":
            return 18 <= opset < 21
        case name:
            return name in EXPERIMENTAL and not onnx.defs.has(name, opset)


def _drop_unread_statistics(proto: onnx.ModelProto) -> None:
    """Take the names of results that nobody reads: which of them somebody does decides whether they can be had."""
    graphs = list(every_graph(proto.graph))
    read = {name for graph in graphs for node in graph.node for name in node.input}
    read |= {value.name for graph in graphs for value in graph.output}
    for graph in graphs:
        for node in graph.node:
            if node.domain == LEGACY and node.op_type == "BatchNormalization":
                for place in range(3, len(node.output)):
                    if node.output[place] not in read:
                        node.output[place] = ""


def place_slopes(proto: onnx.ModelProto) -> None:
    """Give slopes of PRelu by channel, as files before opset 7 have them, the axes behind the channels, in place."""
    if not any(node.op_type == "PRelu" for graph in every_graph(proto.graph) for node in graph.node):
        return
    inferred = onnx.shape_inference.infer_shapes(proto)
    ranks: dict[str, int] = {}
    for graph in every_graph(inferred.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                ranks[value.name] = len(value.type.tensor_type.shape.dim)
        ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for graph in every_graph(proto.graph):
        for place, node in reversed([*enumerate(graph.node)]):
            rank = ranks.get(node.input[0], 0) if node.op_type == "PRelu" else 0
            if rank > 2 and ranks.get(node.input[1]) == 1:
                slope, node.input[1] = node.input[1], f"{node.output[0]}_slope"
                axes = [*range(1, rank - 1)]
                graph.node.insert(place, helper.make_node("Unsqueeze", [slope], [node.input[1]], axes=axes))


def masks_of(graph: onnx.GraphProto) -> set[str]:
    """Return the masks of Dropout that are read, which before opset 10 are of the type of the data.

    Raises ModelError for one that trains, which the converter knows no form of.
    """
    found, read = set[str](), set[str]()
    for one in every_graph(graph):
        read.update(output.name for output in one.output)
        for node in one.node:
            read.update(node.input)
            if node.op_type != "Dropout" or node.domain:
                continue
            if any(given.name == "is_test" and not given.i for given in node.attribute):
                raise fault_of(
                    node,
                    "is_test is 0, which asks for training, which Graft takes from opset 12 on; "
                    "leave it out, or set it to 1",
                )
            found.update(node.output[1:])
    return found & (read - {""})


def keep_masks(graph: onnx.GraphProto, masks: set[str]) -> None:
    """Give the masks of converted Dropouts, in place, the type that they had."""
    for one in every_graph(graph):
        for place, node in reversed([*enumerate(one.node)]):
            if node.op_type == "Dropout" and len(node.output) > 1 and (mask := node.output[1]) in masks:
                node.output[1] = f"{mask}_kept"
                one.node.insert(place + 1, helper.make_node("CastLike", [node.output[1], node.input[0]], [mask]))


def resizes_of(graph: onnx.GraphProto) -> dict[str, str]:
    """Return, by the result of each Upsample and Resize before opset 11, how it chooses the nearest pixel.

    Before opset 11 coordinates were only scaled, and the nearest pixel was the next lower one when enlarging and the
    next higher one when reducing (as onnx's own tests of opset 10 have it, and ONNX Runtime).
    """
    found = {}
    for one in every_graph(graph):
        constants = {**constants_of(graph), **constants_of(one)}
        for node in one.node:
            if node.op_type in ("Upsample", "Resize") and not node.domain:
                found[node.output[0]] = _nearest_of(node, constants.get)
    return found


def _nearest_of(node: onnx.NodeProto, constant: Callable[[str], onnx.TensorProto | None]) -> str:
    tensor = constant(node.input[1]) if len(node.input) > 1 else None
    given = [tuple(one.floats) for one in node.attribute if one.name == "scales"]
    scales = np.array(given[0]) if given else None if tensor is None else numpy_helper.to_array(tensor)
    if scales is None or np.all(scales >= 1):
        return "floor"
    if np.all(scales <= 1):
        return "ceil"
    mode = next((one.s for one in node.attribute if one.name == "mode"), b"nearest")
    if mode == b"nearest":
        raise fault_of(
            node,
            "it enlarges along one axis and reduces along another, by the rules for the nearest "
            "pixel of opset 10; export the model again with opset 11 or later",
        )
    return "floor"


def keep_resizes(graph: onnx.GraphProto, nearest: dict[str, str]) -> None:
    """Give converted Resize nodes, in place, the rules that they had before opset 11."""
    for one in every_graph(graph):
        for node in one.node:
            if node.op_type == "Resize" and node.output[0] in nearest:
                own = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest[node.output[0]]}
                kept = [attribute for attribute in node.attribute if attribute.name not in own]
                copies = [onnx.AttributeProto.FromString(attribute.SerializeToString()) for attribute in kept]
                del node.attribute[:]
                node.attribute.extend([*copies, *(helper.make_attribute(*item) for item in own.items())])
