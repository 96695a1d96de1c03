"""A function traced to ATen and compiled whole, for tests of single rows."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graft.torch.backend import cached_decompositions
from graft.torch.compiling import CompiledGraph, boxed, compile_graph
from graft.torch.options import Options

STRICT = Options(backends=("llvm",), strict=True)


def graph_of(function, *inputs, mode="fake"):
    return make_fx(function, decomposition_table=cached_decompositions(), tracing_mode=mode)(*inputs)


def compiled(function, *inputs, mode="fake", options=STRICT) -> CompiledGraph:
    def listed(*given):
        result = function(*given)
        return list(result) if isinstance(result, tuple | list) else [result]

    return compile_graph(graph_of(listed, *inputs, mode=mode), options)


def check(function, *inputs, tolerance=1e-5):
    """Compare a function compiled whole with eager PyTorch: numbers, types, shapes, strides."""
    graph = compiled(function, *inputs)
    assert graph.programs, "nothing was compiled"
    found = list(boxed(graph)(list(inputs)))
    expected = function(*inputs)
    expected = list(expected) if isinstance(expected, tuple | list) else [expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert one.stride() == other.stride()
