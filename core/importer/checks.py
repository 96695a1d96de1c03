"""The checks on a model that has just been read, each with a message that names the node.

`onnx.checker` runs as well, after these: it knows more rules, but says less about where and what to do.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter

import onnx
import onnx_ir as ir
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from graft.core.graph.protos import canonical, every_node, fault_of, order, subgraphs, where_of
from graft.core.importer.external_data import tensor_bytes
from graft.core.operators.definition.table import OPERATORS
from graft.errors import ModelError

NEWEST_IR_VERSION = onnx.IR_VERSION
MOST_NODES = 1_000_000
_LEAST = {"GatherND": {"batch_dims": 0}}
"""Attributes below which onnx's shape inference reads outside of its arrays; `graft.core.importer.node_checks` has
all others."""
EARLY = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
TENSOR = AttributeProto.TENSOR
"""Looked up once, for that is slow in a message's class."""
ELEMENT_TYPES = frozenset(TensorProto.DataType.values())


def check_model(model: ModelProto) -> None:
    """Check header, operators, names, order and tensor contents; raise ModelError at the first fault."""
    opsets = opset_imports(model.opset_import, "model")
    functions = {(function.domain, function.name): function for function in model.functions}
    _check_functions(functions, model.graph.node)
    for function in model.functions:
        own = {**opsets, **opset_imports(function.opset_import, f"function '{function.name}'")}
        check_operators(function.node, own, functions)
        check_names(function.node, set(function.input), function.output, f"function '{function.name}'")
        declared = {*function.attribute, *(one.name for one in function.attribute_proto)}
        _check_references(function.node, declared, f"function '{function.name}' has no such attribute")
    check_operators(model.graph.node, opsets, functions)
    _check_references(model.graph.node, set(), "only nodes of a function may, to its attributes")
    check_graph(model.graph)


def check_header(model: ModelProto) -> None:
    """Check that names are text, and that there is a graph with outputs and an IR version that can be read.

    A newer IR version can be read where nothing new is used.

    Raise ModelError where one of these is not so.
    """
    check_encoding(model)
    if not model.HasField("ir_version") or not model.HasField("graph"):
        raise ModelError("this is not an ONNX model: it has no graph; pass the .onnx file that an exporter wrote")
    if model.ir_version < 0 or (model.ir_version > NEWEST_IR_VERSION and _has_unknown_fields(model)):
        raise ModelError(
            f"the model has IR version {model.ir_version} but onnx {onnx.__version__} reads 1 to "
            f"{NEWEST_IR_VERSION}, and it uses what came later; upgrade onnx",
            ir_version=model.ir_version,
        )
    _check_duplicates(model.graph)
    if not model.graph.output:
        raise ModelError(f"graph '{model.graph.name}' has no outputs, so there is nothing to compute")


def _has_unknown_fields(message: Message) -> bool:
    """Whether a message holds fields that this version of onnx does not know, in any part."""
    if len(UnknownFieldSet(message)):
        return True
    return any(
        _has_unknown_fields(child)
        for descriptor, value in message.ListFields()
        if descriptor.message_type is not None
        for child in ([value] if isinstance(value, Message) else value)
    )


def check_encoding(message: Message) -> None:
    """Check that strings are UTF-8 (Python gives another one as bytes) and element types exist, in every part.

    Raise ModelError with the first that is not.
    """
    if isinstance(message, TypeProto.Tensor | TypeProto.SparseTensor) and message.elem_type not in ELEMENT_TYPES:
        raise ModelError(f"a value of the model has the unknown element type {message.elem_type}")
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for child in [value] if isinstance(value, Message) else value:
                check_encoding(child)
        elif descriptor.type == descriptor.TYPE_STRING:
            wrong = [text for text in ([value] if isinstance(value, str | bytes) else value) if isinstance(text, bytes)]
            if wrong:
                raise ModelError(f"a name in the model is not text in UTF-8: {wrong[0]!r}; the file is damaged")


def opset_imports(imports: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    """Return the imported operator sets by domain ("" for ai.onnx).

    Raise ModelError for an opset that onnx does not know.
    """
    opsets: dict[str, int] = {}
    for entry in imports:
        opsets[canonical(entry.domain)] = entry.version
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 1) > newest or opsets.get("", 1) < 1:
        raise ModelError(
            f"{where} imports opset {opsets['']} but onnx {onnx.__version__} knows 1 to {newest}; upgrade onnx",
            opset=opsets[""],
        )
    return opsets


def check_operators(
    nodes: Iterable[NodeProto], opsets: dict[str, int], functions: dict[tuple[str, str], FunctionProto]
) -> None:
    """Check that every operator exists in the imported operator sets, among the functions or in the operator table."""
    for node in nodes:
        domain = canonical(node.domain)
        if (node.domain, node.op_type) not in functions:
            _check_operator(node, domain, opsets)
        for graph in subgraphs(node):
            check_operators(graph.node, opsets, functions)


def _check_references(nodes: Iterable[NodeProto], declared: set[str], why: str) -> None:
    """Check that attributes that refer to another one find it among those that a function declares."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.ref_attr_name and attribute.ref_attr_name not in declared:
                raise fault_of(node, f"attribute '{attribute.name}' refers to '{attribute.ref_attr_name}'; {why}")
        for graph in subgraphs(node):
            _check_references(graph.node, declared, why)


def _check_operator(node: NodeProto, domain: str, opsets: dict[str, int]) -> None:
    if is_early(node, opsets):
        return
    foreign = bool(domain) and not domain.startswith("ai.onnx")
    if foreign and OPERATORS.get(node.op_type, domain) is None and OPERATORS.discover is not None:
        OPERATORS.discover()
    if foreign and OPERATORS.get(node.op_type, domain) is not None:
        return
    shown = domain or "ai.onnx"
    own = {row.name: 1 for row in OPERATORS if row.domain == domain} if foreign else {}
    names = own or _operator_sets().get(domain)
    if names is None:
        known = ", ".join(sorted(name or "ai.onnx" for name in _operator_sets()))
        raise fault_of(
            node, f"unknown domain '{shown}'; known are {known}, the model's own functions and what plugins register"
        )
    if domain not in opsets:
        raise fault_of(node, f"the model does not import operator set '{shown}'")
    version = opsets[domain]
    if node.op_type not in names:
        near = difflib.get_close_matches(node.op_type, names, 1)
        hint = f"; did you mean '{near[0]}'" if near else ""
        raise fault_of(node, f"operator set '{shown}' has no operator '{node.op_type}'{hint}")
    if names[node.op_type] > version:
        raise fault_of(
            node,
            f"'{node.op_type}' came with opset {names[node.op_type]} of '{shown}' but the "
            f"model imports opset {version}",
        )


def is_early(node: NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether ONNX Runtime's optimiser put an operator of its own among ai.onnx's, which has it later or not at all."""
    if canonical(node.domain) or node.op_type not in EARLY:
        return False
    came = _operator_sets()[""].get(node.op_type)
    return came is None or came > opsets.get("", 1)


@cache
def _operator_sets() -> dict[str, dict[str, int]]:
    """Return, by ONNX's domains and operator, the opset with which the operator came."""
    sets: dict[str, dict[str, int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain and not schema.domain.startswith("ai.onnx"):
            continue  # a plugin's, which its row of the operator table tells
        names = sets.setdefault(schema.domain, {})
        names[schema.name] = min(schema.since_version, names.get(schema.name, schema.since_version))
    return sets


def check_graph(graph: GraphProto, outer: set[str] | None = None) -> None:
    """Check names, order and constants of a graph; ``outer`` are the names that it sees from outside."""
    for tensor in graph.initializer:
        check_tensor(tensor, f"initialiser '{tensor.name}'")
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    _check_duplicates(graph)
    names = [value.name for value in graph.output]
    check_names(graph.node, defined, names, f"graph '{graph.name}'", outer)


def check_names(
    nodes: Iterable[NodeProto],
    defined: set[str],
    outputs: Iterable[str],
    where: str,
    outer: set[str] | None = None,
) -> None:
    """Check that every value has one producer and every name one value, and that there is no cycle.

    Raise ModelError with the node where one has not.
    """
    nodes = list(nodes)
    producers: dict[str, NodeProto] = {}
    for node in nodes:
        for name in filter(None, node.output):
            if name in producers or name in defined:
                raise fault_of(node, f"value '{name}' is computed twice in {where}")
            producers[name] = node
    known = set() if outer is None else outer  # not a copy: there may be thousands of bodies in a graph of thousands
    own = (defined | producers.keys()) - known
    known |= own
    for node in nodes:
        for name in filter(None, node.input):
            _require(name, known, f"{where_of(node)}: input", where)
        _check_attributes(node, known)
    for name in outputs:
        _require(name, known, "output", where)
    known -= own
    order(nodes)


def check_tensor(tensor: TensorProto, where: str) -> None:
    """Check that a tensor holds as much as its type and shape say; raise ModelError with both numbers."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return
    if tensor.data_type not in ELEMENT_TYPES or tensor.data_type == TensorProto.UNDEFINED:
        raise ModelError(f"{where} has the unknown element type {tensor.data_type}", tensor=tensor.name)
    if tensor.HasField("raw_data") and tensor.data_type != TensorProto.STRING:
        found, needed, unit = len(tensor.raw_data), tensor_bytes(tensor), "bytes"
    else:
        found, needed, unit = len(getattr(tensor, _field_of(tensor))), _field_length(tensor), "elements"
    if found != needed:
        raise ModelError(
            f"{where} has {found} {unit} but its shape {list(tensor.dims)} needs {needed}; the file is damaged",
            tensor=tensor.name,
        )


def _field_of(tensor: TensorProto) -> str:
    return str(onnx.helper.tensor_dtype_to_field(tensor.data_type))


def _field_length(tensor: TensorProto) -> int:
    """Return how many entries a tensor's typed field needs: sub-byte elements are packed, complex ones take two."""
    elements = int(math.prod(tensor.dims))
    if tensor.data_type == TensorProto.STRING:
        return elements
    if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return 2 * elements
    packed = ir.DataType(tensor.data_type).bitwidth < 8
    return tensor_bytes(tensor) if packed else elements


def _check_attributes(node: NodeProto, known: set[str]) -> None:
    least = _LEAST.get(node.op_type, {})
    for attribute in node.attribute:
        if attribute.i < least.get(attribute.name, attribute.i):
            raise fault_of(
                node, f"{attribute.name} is {attribute.i}, where at least {least[attribute.name]} is expected"
            )
        if attribute.type == TENSOR:
            check_tensor(attribute.t, f"{where_of(node)}: attribute '{attribute.name}'")
    for graph in subgraphs(node):
        check_graph(graph, known)


def _require(name: str, known: set[str], who: str, where: str) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, sorted(known), 1)
    hint = f"; did you mean '{near[0]}'" if near else ""
    raise ModelError(f"{who} '{name}' is not computed by any node of {where}{hint}", value=name)


def _check_duplicates(graph: GraphProto) -> None:
    """Check that no two inputs and no two initialisers of a graph have the same name."""
    for kind, values in (("input", graph.input), ("initialiser", graph.initializer)):
        counts = Counter(value.name for value in values)
        if twice := [name for name, count in counts.items() if count > 1 and name]:
            raise ModelError(
                f"graph '{graph.name}' has two {kind}s called '{twice[0]}'; give one of them another name",
                value=twice[0],
            )


def _check_functions(functions: dict[tuple[str, str], FunctionProto], nodes: Iterable[NodeProto]) -> None:
    """Check that functions do not call each other in a cycle, and that inlining ends in a bounded number of nodes."""
    sorter: TopologicalSorter[tuple[str, str]] = TopologicalSorter()
    for key, function in functions.items():
        sorter.add(key, *(call for call in map(_called, every_node(function.node)) if call in functions))
    try:
        sorter.prepare()
    except CycleError as error:
        names = " -> ".join(f"{domain}.{name}" for domain, name in error.args[1])
        raise ModelError(f"the model's functions call each other in a cycle: {names}") from None
    sizes: dict[tuple[str, str], int] = {}
    while sorter.is_active():
        for key in sorter.get_ready():
            sizes[key] = _expanded(functions[key].node, sizes)
            sorter.done(key)
    total = _expanded(nodes, sizes)
    if total > MOST_NODES:
        raise ModelError(
            f"the model's functions stand for {total} nodes once inlined, more than the {MOST_NODES} that are allowed"
        )


def _expanded(nodes: Iterable[NodeProto], sizes: dict[tuple[str, str], int]) -> int:
    """Return the number of nodes that ``nodes`` stand for once calls of the functions in ``sizes`` are inlined."""
    return sum(sizes.get(_called(node), 1) for node in every_node(nodes))


def _called(node: NodeProto) -> tuple[str, str]:
    return node.domain, node.op_type
