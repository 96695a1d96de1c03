"""A region as a stand-alone ONNX model."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
from onnx import numpy_helper

from graft.core.graph.view import PACKABLE, NodeView, ValueView
from graft.core.operators.all import OPERATORS
from graft.core.shapes.inference import infer_proto
from graft.errors import CompileError
from graft.partition.region import COMPOSITE_DOMAIN, Region

IR_VERSION = 10


def model_of(region: Region) -> onnx.ModelProto:
    """Return the region as a model: inputs are its run-time inputs, then the constants of `constants_of`, in order.

    Others, strings and elements of fewer than 8 bits, are initialisers. Composites are functions of the model. Raises
    CompileError for an input whose type is unknown.
    """
    function = ir.to_proto(region.function)
    names = [value.name for value in region.function.inputs]
    values = {value.name: value for value in region.function.inputs}
    embedded = [name for name, tensor in region.constants.items() if tensor.dtype in PACKABLE]
    run_time = [value.name for value in region.inputs]
    assert sorted((*run_time, *region.constants)) == sorted(name or "" for name in names), region.name
    given = [*run_time, *(name for name in region.constants if name not in embedded)]
    known = [ValueView(output) for node in region.function for output in node.outputs]
    results = {value.name for value in region.outputs}
    graph = onnx.GraphProto(
        name=region.name,
        node=function.node,
        input=[_typed(region, ValueView(values[name])) for name in given],
        output=[
            onnx.ValueInfoProto(name=value.name) if value.value.type is None else _info(value)
            for value in region.outputs
        ],
        value_info=[_info(value) for value in known if value.name not in results and value.value.type is not None],
        initializer=[_initializer(region.constants[name], name) for name in embedded],
    )
    bodies = [ir.to_proto(body) for body in region.composites.values()]
    opsets = {row.domain: row.version for row in function.opset_import}
    for body in bodies:
        for row in body.opset_import:
            opsets.setdefault(row.domain, row.version)
    if bodies:
        opsets.setdefault(COMPOSITE_DOMAIN, 1)
    model = onnx.ModelProto(ir_version=IR_VERSION, graph=graph, functions=bodies)
    model.opset_import.extend(onnx.OperatorSetIdProto(domain=name, version=number) for name, number in opsets.items())
    return model


def constants_of(region: Region) -> dict[str, np.ndarray]:
    """Return the constants that are handed over to the loader: all whose elements the executor has."""
    return {name: tensor.numpy() for name, tensor in region.constants.items() if tensor.dtype not in PACKABLE}


def _initializer(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """Return a constant as it stands in a model; an array of strings may be of objects or of bytes of one length."""
    array = tensor.numpy()
    return numpy_helper.from_array(array.astype(object) if tensor.dtype is ir.DataType.STRING else array, name)


def _typed(region: Region, value: ValueView) -> onnx.ValueInfoProto:
    if value.value.type is None:
        node = NodeView(next(iter(region.function)))
        raise CompileError(
            f"region '{region.name}' ({node.where}): the type of input '{value.name}' is unknown; "
            "run shape inference before partitioning",
            region=region.name,
        )
    return _info(value)


def _info(value: ValueView) -> onnx.ValueInfoProto:
    return ir.serde.serialize_value(value.value)


def whole_model_of(region: Region) -> onnx.ModelProto:
    """Return the region as a model that needs nothing else: its constants are initialisers, its composites opened.

    The names of its inputs and outputs are those of the region's values. Raises CompileError as `model_of` does.
    """
    model = model_of(region)
    del model.graph.input[len(region.inputs) :]
    for name, array in constants_of(region).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return infer_proto(onnx.inliner.inline_local_functions(model)) if model.functions else model


def without_weights(model: bytes) -> bytes:
    """Return a model without the contents of its weights: what products alone read, behind their first input."""
    proto = onnx.ModelProto.FromString(model)
    read = [(name, place, node) for node in proto.graph.node for place, name in enumerate(node.input)]
    others = {name for name, place, node in read if place == 0 or not _is_product(node)}
    for tensor in proto.graph.initializer:
        if tensor.name not in others:
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    stripped: bytes = proto.SerializeToString(deterministic=True)
    return stripped


def _is_product(node: onnx.NodeProto) -> bool:
    operator = OPERATORS.get(node.op_type, node.domain)
    return operator is not None and operator.channels_of_weights is not None
