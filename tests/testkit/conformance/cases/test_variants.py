"""What the kit makes of a model to try a backend with."""

from __future__ import annotations

import numpy as np
import onnx

from graft.testkit.conformance.cases.outcome import Trial
from graft.testkit.conformance.cases.variants import with_other_extents

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'


def extents_of(text: str, feeds: dict[str, np.ndarray]) -> list[list[tuple[int, ...]]]:
    trial = Trial(onnx.parser.parse_model(f"{HEADER} g {text}"), feeds)
    return [[array.shape for array in other.feeds.values()] for other in with_other_extents(trial)]


def test_symbols_get_other_sizes_together_and_apart_and_a_batch_of_none() -> None:
    found = extents_of("(float[n, d] x) => (float[n, d] y) { y = Relu (x) }", {"x": np.ones((2, 3), np.float32)})
    assert found == [[(3, 4)], [(3, 3)], [(2, 4)], [(0, 3)]]


def test_what_may_be_a_size_keeps_its_own() -> None:
    feeds = {"x": np.ones((2, 3), np.float32), "s": np.array([3, 2])}
    found = extents_of("(float[n, 3] x, int64[k] s) => (float y) { y = Reshape (x, s) }", feeds)
    assert found == [[(3, 3), (2,)], [(0, 3), (2,)]]


def test_a_model_whose_rank_is_unknown_stays_as_it_is() -> None:
    trial = Trial(
        onnx.parser.parse_model(f"{HEADER} g (float[n] x) => (float[n] y) {{ y = Relu (x) }}"),
        {"x": np.ones((2, 3), np.float32)},
    )
    trial.proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert list(with_other_extents(trial)) == []
