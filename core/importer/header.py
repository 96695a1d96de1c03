"""What the header of a model and its names leave out, write twice or write in an older form, made good in place.

ONNX Runtime takes all of it, ONNX's checker none; so this runs before any check of what the graph says.
"""

from __future__ import annotations

import onnx

from graft.core.graph.protos import canonical, every_graph, every_node, nodes_of_model, put_nodes, subgraphs
from graft.core.operators.definition.function_body import MICROSOFT

OLDEST_IR = 4
"""The first IR version whose initialisers need not be inputs."""


def complete_header(proto: onnx.ModelProto, ir_version: int) -> None:
    """Raise an old IR version, take one from the future down to ``ir_version``, and name the graphs."""
    if proto.ir_version < 3 and not proto.opset_import:
        proto.opset_import.add(domain="", version=1)  # what the first IR versions meant
    proto.ir_version = max(proto.ir_version, OLDEST_IR) if proto.ir_version <= onnx.IR_VERSION else ir_version
    for graph in every_graph(proto.graph):
        graph.name = graph.name or "graph"
    properties = {one.key: one.value for one in reversed(proto.metadata_props)}
    if len(properties) < len(proto.metadata_props):
        del proto.metadata_props[:]
        for key, value in properties.items():
            proto.metadata_props.add(key=key, value=value)


def complete_names(proto: onnx.ModelProto) -> None:
    """Give nodes names and the short domain, and drop what says nothing.

    That is: inputs without a name at the end of a node's, initialisers without a name, dimensions below 0.
    """
    for node in nodes_of_model(proto):
        node.domain = canonical(node.domain)
        node.name = node.name or next(iter(node.output), "")
        _drop_absent_inputs(node)
    for graph in every_graph(proto.graph):
        for place in reversed(range(len(graph.initializer))):
            if not graph.initializer[place].name:
                del graph.initializer[place]
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dimension in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
                if dimension.dim_value < 0:
                    dimension.Clear()


def _drop_absent_inputs(node: onnx.NodeProto) -> None:
    """End a node's inputs with the last that is there: rules of inference in onnx count those without a name."""
    while node.input and not node.input[-1] and onnx.defs.has(node.op_type, node.domain):
        if len(node.input) == onnx.defs.get_schema(node.op_type, node.domain).min_input:
            return
        del node.input[-1]


def compute_results(graph: onnx.GraphProto) -> None:
    """Let branches and loop bodies compute, in place, what they hand on from outside: ONNX's checker wants it so."""
    for node in every_node(graph.node):
        for body in subgraphs(node):
            own = {value.name for value in (*body.input, *body.initializer)}
            own |= {name for inner in body.node for name in inner.output}
            for place, value in enumerate(body.output):
                if value.name not in own:
                    result = f"{node.name}/{body.name}/{place}"
                    body.node.append(onnx.helper.make_node("Identity", [value.name], [result], result))
                    value.name = result


def state_conditions(graph: onnx.GraphProto) -> None:
    """Give loops that carry nothing, in place, the condition that they leave out.

    onnx_ir drops absent inputs at the end, and ONNX says that a Loop has at least two.
    """
    for one in every_graph(graph):
        nodes = []
        for node in one.node:
            if node.op_type == "Loop" and not node.domain and len(node.input) == 2 and not node.input[1]:
                node.input[1] = f"{node.name}/condition"
                true = onnx.helper.make_tensor("", onnx.TensorProto.BOOL, [], [True])
                nodes.append(onnx.helper.make_node("Constant", [], [node.input[1]], node.input[1], value=true))
        if nodes:
            put_nodes(one, (*nodes, *one.node))


def complete_imports(proto: onnx.ModelProto) -> list[str]:
    """Import the operator sets of the model's own functions and of ONNX Runtime, where nodes use them; return which."""
    known = {canonical(one.domain) for one in proto.opset_import}
    own = {function.domain for function in proto.functions} | {MICROSOFT}
    missing = sorted({node.domain for node in nodes_of_model(proto)} & own - known)
    for domain in missing:
        proto.opset_import.add(domain=domain, version=1)
    return missing


def drop_uncalled(proto: onnx.ModelProto) -> list[str]:
    """Drop the functions of a model that nothing calls, in place; return their names."""
    functions = {(canonical(one.domain), one.name): one for one in proto.functions}
    waiting = [(node.domain, node.op_type) for node in every_node(proto.graph.node)]
    called = set()
    while waiting:
        key = waiting.pop()
        if key in functions and key not in called:
            called.add(key)
            waiting += [(canonical(node.domain), node.op_type) for node in every_node(functions[key].node)]
    dropped = []
    for place in reversed(range(len(proto.functions))):
        function = proto.functions[place]
        if (canonical(function.domain), function.name) not in called:
            dropped.append(function.name)
            del proto.functions[place]
    return dropped[::-1]


def state_defaults(proto: onnx.ModelProto) -> None:
    """Give every call of the model's own functions the attributes that it leaves to their defaults.

    onnx's inliner (1.23) knows no defaults and gives the operators within a function those of their own.
    """
    defaults = {(canonical(one.domain), one.name): one.attribute_proto for one in proto.functions}
    for node in nodes_of_model(proto):
        given = {attribute.name for attribute in node.attribute}
        absent = [one for one in defaults.get((canonical(node.domain), node.op_type), ()) if one.name not in given]
        node.attribute.extend(absent)
