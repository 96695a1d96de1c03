"""The operator Attention over a batch and lengths that are known only when it runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.errors import InputError

RANDOM = np.random.default_rng(5)
CASES = {
    "causal": (
        "(float[b,4,q,16] Q, float[b,2,k,16] K, float[b,2,k,16] V) => (float[b,4,q,16] Y)",
        "Y = Attention<is_causal = 1>(Q, K, V)",
        ("Q", "K", "V"),
    ),
    "flat, with mask and cap": (
        "(float[b,q,64] Q, float[b,k,32] K, float[b,k,32] V, float[b,1,q,k] M) => (float[b,q,64] Y)",
        "Y = Attention<q_num_heads = 4, kv_num_heads = 2, softcap = 2.0>(Q, K, V, M)",
        ("Q", "K", "V", "M"),
    ),
    "returned caches": (
        """(float[b,q,64] Q, float[b,q,32] NK, float[b,q,32] NV, float[b,2,p,16] PK, float[b,2,p,16] PV)
        => (float[b,q,64] Y, float[b,2,t,16] K, float[b,2,t,16] V)""",
        "Y, K, V = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1>(Q, NK, NV, , PK, PV)",
        ("Q", "NK", "NV", "PK", "PV"),
    ),
    "caches read alone": (
        """(float[b,q,64] Q, float[b,q,32] NK, float[b,q,32] NV, float[b,2,p,16] PK, float[b,2,p,16] PV)
        => (float[b,q,64] Y)""",
        "Y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1>(Q, NK, NV, , PK, PV)",
        ("Q", "NK", "NV", "PK", "PV"),
    ),
}


def fed(name: str, text: str, sizes: dict[str, int]) -> np.ndarray:
    """The input of a model's text, of these sizes."""
    head = text.split(f"] {name}")[0].rpartition("[")
    shape = [int(one) if one.isdigit() else sizes[one] for one in head[2].split(",")]
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_attention_of_any_lengths_is_native_and_what_onnx_says(name: str) -> None:
    head, body, inputs = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 24]> a {head} {{ {body} }}')
    program = graft.compile(model, ["llvm"], strict=True)
    calls = [call for procedure in program.description.procedures for call in procedure.calls]
    assert "varying_attention" in [dict(call.schedule).get("strategy") for call in calls]
    evaluator = ReferenceEvaluator(model)
    for batch, queries, keys, past in ((1, 3, 5, 4), (2, 1, 70, 33), (2, 70, 300, 0), (0, 2, 2, 1), (1, 0, 3, 2)):
        sizes = {"b": batch, "q": queries, "k": keys, "p": past}
        feeds = {one: fed(one, head, sizes) for one in inputs}
        if 0 in (batch, queries):  # onnx.reference reshapes to -1
            assert program.run(feeds)["Y"].size == 0
            continue
        expected = evaluator.run(None, feeds)
        for found, wanted in zip(program.run(feeds).values(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_keys_of_another_length_than_values_are_refused_when_the_program_is_called() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 11, opset_import: ["" : 24]>
        a (float[b,4,q,16] Q, float[b,2,k,16] K, float[b,2,v,16] V) => (float[b,4,q,16] Y) { Y = Attention(Q, K, V) }"""
    )
    program = graft.compile(model, ["llvm"], strict=True)
    feeds = [np.zeros(shape, np.float32) for shape in ((1, 4, 3, 16), (1, 2, 5, 16), (1, 2, 6, 16))]
    with pytest.raises(InputError) as error:
        program(*feeds)
    assert error.value.message == (
        "Attention (node 'Y'): axis 2 of 'V' is 6 and axis 2 of 'K' is 5; they must be equal"
    )
