"""A JSON graph as the bytes of an ONNX model, without the package onnx: where programs are deployed there is none.

The form is that of Protocol Buffers: a message is a row of fields, each a number, a type of wire and what it holds. The
numbers of fields are those of onnx.proto.
"""

import struct

DTYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}
IR_VERSION, OPSET = 10, 25
"""Regions are in the opset that Graft brings every model to."""


def number(field, value):
    """Return a field that holds an integer."""
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def message(field, *parts):
    """Return a field that holds bytes, a text or the fields of a message."""
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _varint(value):
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes((*groups, value))


def attribute(name, value):
    """Return an AttributeProto; a number that is not finite comes as a text, as `BodyOperator` says."""
    match value:
        case int():
            return message(5, message(1, name), number(3, value), number(20, 2))
        case "inf" | "-inf" | "nan" | float():
            return message(5, message(1, name), _float(2, value), number(20, 1))
        case str():
            return message(5, message(1, name), message(4, value), number(20, 3))
        case [int(), *_] | []:
            return message(5, message(1, name), *(number(8, one) for one in value), number(20, 7))
        case [float(), *_]:
            return message(5, message(1, name), *(_float(7, one) for one in value), number(20, 6))
    raise TypeError(f"attribute '{name}' is {value!r}, which none of the operators of ort has")


def _float(field, value):
    return _varint(field << 3 | 5) + struct.pack("<f", float(value))


def is_weight(array):
    """Whether the session is given a constant apart; shapes and axes it has to see while it reads the model."""
    return array.dtype == "float32"


def initializer(name, array):
    """Return a TensorProto; the elements of weights are not in it, so that they are not copied."""
    begin = *(number(1, extent) for extent in array.shape), number(2, DTYPES[str(array.dtype)]), message(8, name)
    if is_weight(array):
        return message(5, *begin, message(13, message(1, "location"), message(2, "memory")), number(14, 1))
    return message(5, *begin, message(9, array.astype(array.dtype.newbyteorder("<")).tobytes()))


def value_info(field, name, dtype, shape):
    """Return a ValueInfoProto; an extent that is no number is left open, as is a shape that is not known."""
    dims = (message(1, number(1, one) if isinstance(one, int) else b"") for one in shape or ())
    tensor = message(1, number(1, DTYPES[dtype]), *([] if shape is None else [message(2, *dims)]))
    return message(field, message(1, name), message(2, tensor))


def encode(graph, constants):
    """Return the bytes of a model with the graph's inputs, constants (named ``v<node>``) and outputs."""
    parts, values = [], []
    for at, node in enumerate(graph.nodes):
        match node.op:
            case "input":
                parts.append(value_info(11, f"v{at}", node.dtype[0], node.shape[0]))
                values.append([f"v{at}"])
            case "const":
                parts.append(initializer(f"v{at}", constants[node.name]))
                values.append([f"v{at}"])
            case "kernel":
                made = kernel(at, node, ["" if one.is_absent else values[one.node][one.index] for one in node.inputs])
                parts += made
                values.append([f"v{at}_{operator}_{index}" for operator, index in node.results])
    for entry in graph.heads:
        node = graph.nodes[entry.node]
        shape = node.shape[entry.index]
        parts.append(value_info(12, values[entry.node][entry.index], node.dtype[entry.index], shape))
    whole = message(7, *parts, message(2, graph.symbol))
    return number(1, IR_VERSION) + message(8, message(1, ""), number(2, OPSET)) + whole


def kernel(at, node, inputs):
    """Return the operators of a kernel as NodeProtos; their outputs are ``v<node>_<operator>_<output>``."""
    counts = [1] * len(node.body)
    for operator, index in node.results:
        counts[operator] = max(counts[operator], index + 1)
    for place, operator in enumerate(node.body):
        sources = [_source(at, one, inputs) for one in operator.inputs]
        results = (message(2, f"v{at}_{place}_{index}") for index in range(counts[place]))
        attributes = (attribute(*pair) for pair in operator.attributes.items())
        yield message(1, *(message(1, one) for one in sources), *results, message(4, operator.op), *attributes)


def _source(at, source, inputs):
    """Return the name of what an operator of a body reads: nothing, an input of the kernel, or an earlier result."""
    match source:
        case None:
            return ""
        case (-1, index):
            return inputs[index]
        case (operator, index):
            return f"v{at}_{operator}_{index}"
