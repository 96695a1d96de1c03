"""The writer of nodes: constants, extents, axes."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

import numpy as np  # noqa: E402
import onnx_ir as ir  # noqa: E402
import sympy  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from torch.utils._sympy.functions import FloorDiv, Mod  # noqa: E402

from graft.torch.aten.builder import Builder, Refused, axes_of  # noqa: E402


def test_constants_are_written_once_and_must_fit_their_type():
    b = Builder()
    assert b.constant(2, torch.float32).value is b.constant(2, torch.float32).value
    assert b.constant(2, torch.float32).value is not b.constant(2, torch.int64).value
    for value, dtype in ((1.5, torch.int64), (300, torch.uint8), (-1, torch.uint8), (2j, torch.float32)):
        with pytest.raises(Refused):
            b.constant(value, dtype)


def test_extents_are_arithmetic_of_symbols():
    b, s = Builder(origin="extents"), sympy.Symbol("s", integer=True, positive=True)
    b.symbols[s] = ir.Value(name="s", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.INT64))
    found = b._expression(2 * s**2 + FloorDiv(s, 3) - Mod(s, 4) + 1)
    found.value.name = "y"
    found.value.shape = ir.Shape([1])
    graph = ir.Graph(
        [b.symbols[s]], [found.value], nodes=b.nodes, initializers=list(b.constants.values()), opset_imports={"": 21},
        name="extents",
    )  # fmt: skip
    run = ReferenceEvaluator(ir.to_proto(ir.Model(graph, ir_version=10)))
    for value in (1, 7, 30):
        (result,) = run.run(None, {"s": np.array([value])})
        assert result == [2 * value**2 + value // 3 - value % 4 + 1]
    with pytest.raises(Refused, match="nothing that comes in has the extent t"):
        b._expression(sympy.Symbol("t"))
    with pytest.raises(Refused, match="extents are computed with"):
        b._expression(sympy.sqrt(s))


def test_axes_are_counted_from_the_front():
    assert axes_of(None, 3) == axes_of([], 3) == [0, 1, 2]
    assert axes_of(-1, 3) == [2]
    assert axes_of([-1, 0], 3) == [0, 2]
    assert axes_of([0], 0) == []
