"""Sparse tensors made dense, within bounds: nothing here computes with sparse ones."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from graft.core.graph.protos import every_graph
from graft.core.importer.checks import check_tensor
from graft.errors import ModelError

MOST_BYTES = 1 << 20
"""How large a sparse tensor may become in any case; beyond that, `GROWTH` of what the file has of it."""
GROWTH = 1024


def dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return a sparse tensor as a dense one; raise ModelError where it contradicts itself or is nearly empty."""
    name, shape = sparse.values.name, tuple(sparse.dims)
    check_tensor(sparse.values, f"sparse tensor '{name}'")
    check_tensor(sparse.indices, f"the indices of sparse tensor '{name}'")
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    size = math.prod(shape)
    if (
        min(shape, default=1) < 0
        or values.ndim != 1
        or indices.shape not in ((values.size,), (values.size, len(shape)))
    ):
        raise ModelError(
            f"sparse tensor '{name}' of shape {list(shape)} has values of shape {list(values.shape)} and indices of "
            f"shape {list(indices.shape)}; store it dense",
            tensor=name,
        )
    if size * values.itemsize > max(MOST_BYTES, GROWTH * (values.nbytes + indices.nbytes)):
        raise ModelError(
            f"sparse tensor '{name}' of shape {list(shape)} has {values.size} values: as a dense tensor it would take "
            f"more than {GROWTH} times what the model holds of it; store it dense",
            tensor=name,
        )
    limits = np.array(shape if indices.ndim == 2 else size, np.int64)
    if indices.dtype != np.int64 or np.any(indices < 0) or np.any(indices >= limits):
        raise ModelError(
            f"sparse tensor '{name}' of shape {list(shape)} has indices outside of it; store it dense", tensor=name
        )
    places = np.ravel_multi_index(tuple(indices.T), shape) if indices.ndim == 2 else indices
    array = np.zeros(size, values.dtype)
    array[places] = values
    return numpy_helper.from_array(array.reshape(shape), name)


def make_dense(graph: onnx.GraphProto) -> list[str]:
    """Make the sparse tensors within a graph and those below it dense, in place; return their names."""
    names = []
    for one in every_graph(graph):
        for sparse in one.sparse_initializer:
            names.append(sparse.values.name)
            one.initializer.append(dense(sparse))
        del one.sparse_initializer[:]
        for node in one.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.SPARSE_TENSOR and attribute.name == "sparse_value":
                    names.append(node.output[0] if node.output else node.name)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", dense(attribute.sparse_tensor)))
    return names
