"""BatchNormalization in training, which the importer writes as the arithmetic that it is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator

import graft


@pytest.mark.parametrize(
    ("shape", "dtype", "tolerance"),
    [("3,4,5", "float", 1e-6), ("n,4,2,3", "double", 1e-12), ("2,4", "float16", 4e-3)],
)
def test_statistics_of_the_batch_are_computed_in_native_code(shape: str, dtype: str, tolerance: float) -> None:
    vector = ", ".join(f"{dtype}[4] {name}" for name in "sbmv")
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 15]> g ({dtype}[{shape}] x, {vector}) => '
        f"({dtype}[{shape}] y, {dtype}[4] mean, {dtype}[4] variance) {{ y, mean, variance = "
        "BatchNormalization <training_mode = 1, epsilon = 0.01, momentum = 0.7> (x, s, b, m, v) }"
    )
    kind = helper.tensor_dtype_to_np_dtype(proto.graph.input[0].type.tensor_type.elem_type)
    rng = np.random.default_rng(0)
    x = rng.standard_normal([int(one) if one.isdigit() else 3 for one in shape.split(",")]).astype(kind)
    feeds = {"x": x, **{name: rng.uniform(0.5, 1.5, 4).astype(kind) for name in "sbmv"}}
    results = graft.compile(proto, cache=False).run(feeds)
    for got, expected in zip(results.values(), ReferenceEvaluator(proto).run(None, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    assert {row.backend for row in graft.plan(proto).placements}.isdisjoint({"reference"})
