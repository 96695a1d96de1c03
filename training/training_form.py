"""The form of a model in which it is trained: BatchNormalization by the statistics of its batch, which join its own."""

from __future__ import annotations

import onnx
from onnx import helper

from graft.core.graph.protos import types_of


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
