"""The operator Attention over a batch and lengths that are known only when it runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.errors import InputError, ModelError

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
    assert "fused_attention" in [dict(call.schedule).get("strategy") for call in calls]
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


@pytest.mark.parametrize("backend", ["llvm", "c_source", "reference"])
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_a_mask_that_is_shorter_than_the_keys_goes_on_with_minus_infinity(backend: str, width: int, kind: str) -> None:
    open_text, static_text = (
        f"(float[2,2,q,8] Q, float[2,2,{keys},8] K, float[2,2,{keys},8] V, {kind}[q,{mask}] M) => (float[2,2,q,8] Y)"
        for keys, mask in (("k", "m"), ("5", str(width)))
    )
    feeds = {name: RANDOM.standard_normal((2, 2, 5, 8)).astype(np.float32) for name in "QKV"}
    mask = RANDOM.standard_normal((5, width)).astype(np.float32)
    feeds["M"] = mask > -1 if kind == "bool" else mask
    feeds["M"][:, 0] = True
    for text in (open_text, static_text):
        model = onnx.parser.parse_model(
            f'<ir_version: 11, opset_import: ["" : 24]> a {text} {{ Y = Attention(Q, K, V, M) }}'
        )
        found = graft.compile(model, [backend], strict=True).run(feeds)["Y"]
        np.testing.assert_allclose(found, ReferenceEvaluator(model).run(None, feeds)[0], rtol=2e-5, atol=2e-6)


def test_heads_that_are_not_shared_by_whole_groups_are_refused() -> None:
    text = "a (float[1,{},3,8] Q, float[1,2,3,8] K, float[1,2,3,8] V) => (float[1,?,3,8] Y) { Y = Attention(Q, K, V) }"
    opened, fixed = (
        onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 24]> {text.replace("{}", heads)}')
        for heads in ("h", "3")
    )
    says = "Attention (node 'Y'): queries have 3 heads, which keys share in groups: 2 would be a multiple of theirs"
    with pytest.raises(InputError) as error:
        graft.compile(opened, ["reference"])(*(np.ones((1, heads, 3, 8), np.float32) for heads in (3, 2, 2)))
    assert error.value.message == says
    with pytest.raises(ModelError) as refusal:
        graft.compile(fixed)
    assert refusal.value.message == says
