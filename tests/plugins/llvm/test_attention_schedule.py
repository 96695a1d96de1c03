"""Attention as exporters write it, heads moved back behind it: its own schedule takes the kernel."""

import numpy as np
import onnx
import pytest

import graft
import graft.core.schedule.strategies.attention.fused_attention as attention
from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel, Scheduled

HEADS = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,40,6,16] q, float[1,40,6,16] k, float[1,40,6,16] v) => (float[1,40,6,16] y) {
    a = Transpose <perm = [0, 2, 1, 3]> (q)  b = Transpose <perm = [0, 2, 3, 1]> (k)
    c = Transpose <perm = [0, 2, 1, 3]> (v)  d = MatMul (a, b)  e = Softmax (d)  f = MatMul (e, c)
    y = Transpose <perm = [0, 2, 1, 3]> (f)
}
"""


def test_heads_that_are_moved_back_are_stored_so_by_the_schedule_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    schedule = attention.schedule_attention

    def spy(kernel: Kernel, target: Target, *more: object) -> Scheduled | None:
        answers.append(schedule(kernel, target, *more))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(attention, "schedule_attention", spy)
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((1, 40, 6, 16), np.float32) for _ in range(3))
    found = graft.compile(onnx.parser.parse_model(HEADS), ["llvm"], cache=False)(q, k, v)
    assert len(answers) == 1
    assert answers[0] is not None
    scores = np.einsum("bqhf,bkhf->bhqk", q, k)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhqk,bkhf->bqhf", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
