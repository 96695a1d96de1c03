"""Sums and products of truth values: any and all, as NumPy and `onnx.reference` have them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest

import graft

RANDOM = np.random.default_rng(7)
SCATTERS = {
    f"{kind} by {reduction}": (
        f"""(bool[4,5] x, int64[6,{width}] i, bool[6,5] u) => (bool[4,5] y)
        {{ y = {kind} <reduction = "{reduction}"> (x, i, u) }}""",
        {
            "x": RANDOM.random((4, 5)) < 0.5,
            "i": RANDOM.integers(0, 4, (6, width)),
            "u": RANDOM.random((6, 5)) < 0.5,
        },
    )
    for kind, width in (("ScatterElements", 5), ("ScatterND", 1))
    for reduction in ("add", "mul", "max", "min")
}
CASES = {
    **SCATTERS,
    "Col2Im, whose places overlap": (
        "(bool[1,4,9] x, int64[2] i, int64[2] k) => (bool[1,1,4,4] y) { y = Col2Im (x, i, k) }",
        {"x": np.ones((1, 4, 9), bool), "i": np.array([4, 4]), "k": np.array([2, 2])},
    ),
}


@pytest.mark.parametrize("backend", ["llvm", "c_source"])
@pytest.mark.parametrize(("text", "feeds"), CASES.values(), ids=CASES)
def test_truth_values_are_combined_as_numpy_does(text: str, feeds: dict[str, np.ndarray], backend: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> g {text}')
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(graft.compile(model, backends=[backend]).run(feeds)["y"], wanted)
