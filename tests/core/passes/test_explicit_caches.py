"""Attention whose caches are put together by Concat: what it computes stays the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft


@pytest.mark.parametrize(
    "attributes", ["scale = 0.5", "is_causal = 1", "left_window_size = 2", "is_causal = 1, left_window_size = 1"]
)
@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (4, 2), (2, 4)])
@pytest.mark.filterwarnings("ignore")
def test_positions_count_from_the_end_of_the_past(attributes: str, queries: int, keys: int) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 13, opset_import: ["" : 25]> g (float[1,2,{queries},4] q, float[1,2,{keys},4] k,
          float[1,2,{keys},4] v, float[1,2,5,4] pk, float[1,2,5,4] pv)
          => (float[1,2,{queries},4] y, float[1,2,{5 + keys},4] nk, float[1,2,{5 + keys},4] nv) {{
          y, nk, nv = Attention <{attributes}> (q, k, v, , pk, pv)
        }}"""
    )
    random = np.random.default_rng(0)
    arrays = {
        value.name: random.standard_normal([one.dim_value for one in value.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for value in model.graph.input
    }
    expected = ReferenceEvaluator(model).run(None, arrays)
    for result, wanted in zip(graft.compile(model, ["llvm"], threads=1)(*arrays.values()), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
