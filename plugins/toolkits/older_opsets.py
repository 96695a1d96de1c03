"""Models in older opsets, for vendors whose compilers read no newer ones; with a reason where there is no older form.

A node stays as it is where the older operator says the same: it has the inputs, types and attributes, those aside that
have their defaults. Else a row of `FORMS` writes the older form, or onnx's version converter does. An operator that is
newer than the opset is written as the function by which ONNX defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper, version_converter

from graft.core.graph.protos import constants_of, put_nodes, subgraphs, types_of
from graft.core.graph.view import NodeView
from graft.core.importer.function_bodies import expand_functions
from graft.core.importer.upgrade import OPSET
from graft.core.reject import Reject
from graft.core.shapes.inference import infer_proto
from graft.errors import CompileError
from graft.plugins.isolation.pieces import write_nodes

OLDEST = 13
"""Before it, Softmax and other operators meant something else by the same words."""
IR_VERSIONS = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13}
"""By opset the version of the form of files that came with it (onnx, docs/Versioning.md)."""
RENAMED = {("GridSample", "mode"): (20, {"linear": "bilinear", "cubic": "bicubic"})}
"""Values of attributes that had other names before an opset."""
SINCE = {
    ("ScatterElements", "reduction"): {"max": 18, "min": 18},
    ("ScatterND", "reduction"): {"max": 18, "min": 18},
    ("Pad", "mode"): {"wrap": 19},
    ("Resize", "coordinate_transformation_mode"): {"half_pixel_symmetric": 19},
}
"""Values of attributes that there are since an opset."""
Types = Mapping[str, onnx.TypeProto]
Constants = Mapping[str, onnx.TensorProto]


class NoOlderForm(Exception):
    """An operator says what cannot be said in the older opset."""


def refusal(node: NodeView, opset: int | None) -> Reject | None:
    """Return why a node cannot be said in an opset, None if it can."""
    if opset in (None, OPSET):
        return None
    assert opset is not None
    piece = write_nodes([node.node], {})
    if piece is None:
        return Reject("no-pattern", f"{node.op_type} has graphs of its own, which are not brought to opset {opset}")
    try:
        _older(onnx.ModelProto.FromString(piece.model), opset)
    except NoOlderForm as error:
        return Reject("no-pattern", str(error))
    return None


def older(model: onnx.ModelProto, opset: int | None) -> onnx.ModelProto:
    """Return a model of opset 25, with types of values, in an opset; raise CompileError where it has no such form."""
    if opset in (None, OPSET):
        return model
    assert opset is not None
    try:
        return _older(model, opset)
    except NoOlderForm as error:
        raise CompileError(str(error)) from error


def _older(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    expanded, names = expand_functions(model, lambda node: not onnx.defs.has(node.op_type, opset, node.domain))
    result = infer_proto(expanded) if names else onnx.ModelProto.FromString(expanded.SerializeToString())
    types, constants = types_of(result.graph), constants_of(result.graph)
    nodes: list[NodeProto] = []
    for node in result.graph.node:
        if node.domain not in ("", "ai.onnx") or any(True for _ in subgraphs(node)):
            raise NoOlderForm(f"{node.op_type} of domain '{node.domain}' is not brought to opset {opset}")
        nodes += _node(node, opset, types, constants)
    put_nodes(result.graph, nodes)
    result.ir_version = IR_VERSIONS[opset]
    del result.opset_import[:]
    result.opset_import.add(domain="", version=opset)
    return result


def _node(node: NodeProto, opset: int, types: Types, constants: Constants) -> list[NodeProto]:
    if not onnx.defs.has(node.op_type, opset, node.domain):
        raise NoOlderForm(f"opset {opset} has no {node.op_type}, and ONNX does not define it by others there")
    old, new = onnx.defs.get_schema(node.op_type, opset), onnx.defs.get_schema(node.op_type, OPSET)
    if old.since_version == new.since_version:
        return [node]
    form = FORMS.get(node.op_type)
    made = [node] if form is None else form(node, opset, types, constants)
    made = [_with_older_values(one, opset) for one in made]
    faults = [_fault(one, opset, types) for one in made]
    if not any(faults):
        return [_without_defaults(one, opset) for one in made]
    return _converted(node, opset, types, constants, next(filter(None, faults)))


def _with_older_values(node: NodeProto, opset: int) -> NodeProto:
    copy = _copy(node)
    for attribute in copy.attribute:
        key, value = (copy.op_type, attribute.name), attribute.s.decode(errors="replace")
        since, names = RENAMED.get(key, (0, {}))
        if opset < since and value in names:
            attribute.s = names[value].encode()
        if opset < SINCE.get(key, {}).get(value, 0):
            raise NoOlderForm(f"{copy.op_type} of opset {opset} has no {attribute.name} '{value}'")
    return copy


def _fault(node: NodeProto, opset: int, types: Types) -> str:
    """Return why a node says something else, or nothing, in an older opset, "" where it says the same."""
    if not onnx.defs.has(node.op_type, opset):
        return f"opset {opset} has no {node.op_type}"
    old, new = onnx.defs.get_schema(node.op_type, opset), onnx.defs.get_schema(node.op_type, OPSET)
    if len(node.input) > old.max_input or len(node.output) > old.max_output:
        return f"{node.op_type} of opset {opset} has at most {old.max_input} inputs and {old.max_output} outputs"
    given = {one.name: one for one in node.attribute}
    for name, declared in new.attributes.items():
        default = helper.get_attribute_value(declared.default_value) if declared.default_value.name else None
        value = helper.get_attribute_value(given[name]) if name in given else default
        if name not in old.attributes:
            if value != default:
                return f"{node.op_type} of opset {opset} has no attribute '{name}'"
        elif name not in given and _default_of(old.attributes[name]) != default:
            return f"{node.op_type} of opset {opset} has another default of '{name}'"
    for formals, names in ((old.inputs, node.input), (old.outputs, node.output)):
        for number, name in enumerate(names):
            formal = formals[min(number, len(formals) - 1)]
            kind = types.get(name)
            if kind is not None and kind.HasField("tensor_type") and (text := _text(kind)) not in formal.types:
                return f"{node.op_type} of opset {opset} takes no {text} as {formal.name}"
    return ""


def _default_of(attribute: Any) -> Any:
    return helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None


def _text(kind: onnx.TypeProto) -> str:
    return f"tensor({onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()})"


def _without_defaults(node: NodeProto, opset: int) -> NodeProto:
    known = onnx.defs.get_schema(node.op_type, opset).attributes
    kept = [one for one in node.attribute if one.name in known]
    del node.attribute[:]
    node.attribute.extend(kept)
    return node


def _converted(node: NodeProto, opset: int, types: Types, constants: Constants, fault: str) -> list[NodeProto]:
    """Return the node as onnx's converter writes it; raise NoOlderForm with its reason, or the ``fault``."""
    names = dict.fromkeys(filter(None, node.input))
    given = [onnx.ValueInfoProto(name=name, type=types[name]) for name in names if name not in constants]
    results = [onnx.ValueInfoProto(name=name, type=types[name]) for name in node.output if name]
    held = [_named(constants[name], name) for name in names if name in constants]
    graph = helper.make_graph([node], "one", given, results, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSIONS[OPSET])
    try:
        made = version_converter.convert_version(model, opset)
    except Exception as error:  # the converter's own
        reason = str(error).rpartition("failed: ")[2]
        raise NoOlderForm(reason if "not supported" in reason else fault) from error
    nodes = list(made.graph.node)
    left = {one.name for one in made.graph.initializer} - constants.keys()
    if any(_fault(one, opset, types) for one in nodes) or any(name in left for one in nodes for name in one.input):
        raise NoOlderForm(fault)
    for one in nodes:
        one.name = one.name or node.name
    return nodes


def _named(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    copy: onnx.TensorProto = onnx.TensorProto.FromString(tensor.SerializeToString())
    copy.name = name
    return copy


def _copy(node: NodeProto) -> NodeProto:
    copy: NodeProto = NodeProto.FromString(node.SerializeToString())
    return copy


def _split(node: NodeProto, opset: int, types: Types, constants: Constants) -> list[NodeProto]:
    """Parts of equal length were those of a Split without lengths, before it could say how many."""
    count = next((one.i for one in node.attribute if one.name == "num_outputs"), 0)
    axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
    if not count or opset >= 18:
        return [node]
    dims = types[node.input[0]].tensor_type.shape.dim
    extent = dims[axis].dim_value if dims[axis].HasField("dim_value") else 0
    if extent == 0 or extent % count:
        raise NoOlderForm(
            f"Split of opset {opset} parts an axis of {extent or 'unknown length'} by given lengths alone"
        )
    copy = _copy(node)
    kept = [one for one in copy.attribute if one.name != "num_outputs"]
    del copy.attribute[:]
    copy.attribute.extend(kept)
    return [copy]


def _pad(node: NodeProto, opset: int, types: Types, constants: Constants) -> list[NodeProto]:
    """Pads of some axes are those of all, zero for the others."""
    if opset >= 18 or len(node.input) < 4 or not node.input[3]:
        return [node]
    if not {node.input[1], node.input[3]} <= constants.keys():
        raise NoOlderForm(f"Pad of opset {opset} has pads of all axes, and these are not constant")
    rank = len(types[node.input[0]].tensor_type.shape.dim)
    pads, axes = (numpy_helper.to_array(constants[node.input[number]]).tolist() for number in (1, 3))
    whole = np.zeros((2, rank), np.int64)
    whole[:, axes] = np.reshape(pads, (2, len(axes)))
    name = f"{node.output[0]}_pads"
    held = helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(whole.reshape(-1)))
    inputs = [node.input[0], name, node.input[2]]
    copy = _copy(node)
    del copy.input[:]
    copy.input.extend(inputs if node.input[2] else inputs[:2])
    return [held, copy]


FORMS: Mapping[str, Callable[[NodeProto, int, Types, Constants], Sequence[NodeProto]]] = {"Split": _split, "Pad": _pad}
"""Older forms of operators that onnx's converter does not bring down."""
