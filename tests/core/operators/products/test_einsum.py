"""Einsum of several operands, against NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import graft

EQUATIONS = (
    ("ij,jk,kl->il", ((30, 40), (40, 50), (50, 20))),
    ("ab,b,bc->ac", ((3, 4), (4,), (4, 5))),
    ("ij,ij,ij->", ((6, 7), (6, 7), (6, 7))),
    ("i,j,k->ijk", ((3,), (4,), (5,))),
    ("bij,bjk,bkl,lm->bim", ((2, 8, 9), (2, 9, 10), (2, 10, 11), (11, 4))),
    ("ii,ij,jk->k", ((5, 5), (5, 6), (6, 7))),
    ("...ij,jk,...kl->...il", ((2, 3, 8, 9), (9, 10), (1, 3, 10, 4))),
    ("a,ab,abc->c", ((4,), (4, 5), (4, 5, 6))),
)


def model(equation: str, arrays: list[np.ndarray]) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    names = [f"x{number}" for number in range(len(arrays))]
    shapes = [array.shape for array in arrays]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip(names, shapes, strict=True)]
    output = helper.make_tensor_value_info("y", kind, np.einsum(equation, *arrays).shape)
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    graph = helper.make_graph([node], "g", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[one for one, _ in EQUATIONS])
def test_products_of_several_operands_are_those_of_numpy(
    equation: str, shapes: tuple[tuple[int, ...], ...], dtype: type
) -> None:
    random = np.random.default_rng(0)
    arrays = [(3 * random.standard_normal(shape)).astype(dtype) for shape in shapes]
    found = graft.compile(model(equation, arrays), ["llvm"], threads=1, cache=False)(*arrays)
    wanted = np.einsum(equation, *[array.astype(np.float64) for array in arrays])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * max(1, np.abs(wanted).max()))
