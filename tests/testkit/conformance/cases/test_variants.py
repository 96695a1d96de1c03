"""What the kit makes of a model to try a backend with."""

from __future__ import annotations

import numpy as np
import onnx

from graft.testkit.conformance.cases.outcome import Trial
from graft.testkit.conformance.cases.variants import with_operands, with_other_extents, with_view

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


def test_an_operand_comes_as_a_view_of_what_is_transposed() -> None:
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones((2, 3), np.float32)}
    model = onnx.parser.parse_model(
        f"{HEADER} g (float[2, 3] x, float[2, 3] y) => (float[2, 3] z) {{ z = Add (x, y) }}"
    )
    ((name, other),) = with_view(Trial(model, feeds))
    assert (name, [node.op_type for node in other.proto.graph.node]) == ("of-a-view", ["Transpose", "Add"])
    np.testing.assert_array_equal(other.feeds["x"].T, feeds["x"])
    assert other.feeds["y"] is feeds["y"]


def test_indices_come_in_32_bits_where_onnx_takes_them() -> None:
    x = {"x": np.ones((2, 3), np.float32)}
    for operator, shape, second, wanted in (("Gather", "2, 3", 0, ["int32-indices"]), ("Tile", "2, 6", 2, [])):
        model = onnx.parser.parse_model(
            f"{HEADER} g (float[2, 3] x) => (float[{shape}] y) <int64[2] i = {{1, {second}}}> "
            f"{{ y = {operator} (x, i) }}"
        )
        assert [name for name, _ in with_operands(Trial(model, x))] == wanted
