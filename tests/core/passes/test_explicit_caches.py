"""Attention whose caches are put together by Concat: what it computes stays the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.passes.explicit_caches import ExplicitCaches

ATTENTION = """<ir_version: 13, opset_import: ["" : 25]> g (float[2,2,3,4] q, float[2,2,3,4] k, float[2,2,3,4] v,
  float[2,2,5,4] pk, float[2,2,5,4] pv, bool[3,8] m) => (float[2,2,3,4] y, float[2,2,8,4] nk, float[2,2,8,4] nv) {
  y, nk, nv = Attention (q, k, v, m, pk, pv)
}"""


def rewritten(text: str) -> list[str]:
    """The operators of a model after the pass."""
    model = ir.from_proto(onnx.parser.parse_model(text))
    ExplicitCaches().run(model)
    return [node.op_type for node in model.graph]


def test_caches_that_are_read_are_put_together_before_attention() -> None:
    assert rewritten(ATTENTION) == ["Concat", "Concat", "Attention"]
    key = ATTENTION.replace("y, nk, nv =", "y, nk =").replace(", float[2,2,8,4] nv", "")
    assert rewritten(key) == ["Concat", "Concat", "Attention"]
    assert rewritten(key.replace("y, nk =", "y, unread, nk =")) == ["Concat", "Concat", "Attention"]


@pytest.mark.parametrize("attributes", ["is_causal = 1", "left_window_size = 0", "right_window_size = 0"])
def test_what_counts_positions_is_told_the_number_of_keys_of_each_image(attributes: str) -> None:
    text = ATTENTION.replace("Attention (", f"Attention <{attributes}> (")
    assert rewritten(text) == ["Concat", "Concat", "Shape", "Shape", "Expand", "Attention"]
    assert rewritten(text.replace("float[2,2,3,4] k", "float[2,2,1,4] k")) == ["Attention"]
    assert rewritten(text.replace("float[2,2,3,4] k", "float[] k")) == ["Attention"]


def test_attention_without_caches_or_over_three_axes_stays() -> None:
    unread = ATTENTION.replace(", float[2,2,8,4] nk, float[2,2,8,4] nv", "")
    assert rewritten(unread) == ["Attention"]
    assert rewritten(ATTENTION.replace("pk, pv)", ")").replace("m, )", "m)")) == ["Attention"]
    assert rewritten(ATTENTION.replace("m, pk, pv", "m, pk")) == ["Attention"]
    assert rewritten(ATTENTION.replace("float[2,2,3,4] q", "float[2,3,8] q")) == ["Attention"]
    assert rewritten(ATTENTION.replace("float[2,2,3,4] q", "float[] q")) == ["Attention"]


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
