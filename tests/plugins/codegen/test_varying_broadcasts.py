"""Operands whose extents have names of their own are native: equal or 1 by an equation, and read where they have it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import graft
from graft.errors import InputError

Shapes = Callable[[int, int], list[tuple[int, ...]]]
CASES: dict[str, tuple[str, str, Shapes, Callable[..., np.ndarray]]] = {
    "rows": (
        "(float[n,4] x, float[m,4] y) => (float[a,4] z)", "z = Add(x, y)",
        lambda n, m: [(n, 4), (m, 4)], lambda x, y: x + y,
    ),
    "columns": (
        "(float[3,n] x, float[3,m] y) => (float[3,a] z)", "s = Sub(x, y) t = Mul(s, y) z = Tanh(t)",
        lambda n, m: [(3, n), (3, m)], lambda x, y: np.tanh((x - y) * y),
    ),
    "stacks": (
        "(float[n,4,5] x, float[m,5,6] y) => (float[a,4,6] z)", "z = MatMul(x, y)",
        lambda n, m: [(n, 4, 5), (m, 5, 6)], lambda x, y: x @ y,
    ),
    "labels": (
        "(float[n,4,5] x, float[m,5,6] y) => (float[a,4,6] z)", 'z = Einsum<equation="bij,bjk->bik">(x, y)',
        lambda n, m: [(n, 4, 5), (m, 5, 6)], lambda x, y: x @ y,
    ),
    "bias": (
        "(float[n,8] x, float[8,6] y, float[m,6] c) => (float[n,6] z)", "z = Gemm(x, y, c)",
        lambda n, m: [(n, 8), (8, 6), (m, 6)], lambda x, y, c: x @ y + np.broadcast_to(c, (len(x), 6)),
    ),
    "scale": (
        "(float[3,n] x, float[m] w) => (float[3,n] z)", "z = RMSNormalization(x, w)",
        lambda n, m: [(3, n), (m,)],
        lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * np.broadcast_to(w, x.shape),
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["llvm", "c_source"])
@pytest.mark.parametrize("name", CASES)
def test_operands_are_equal_or_one_or_refused(name: str, backend: str) -> None:
    head, body, shapes, expected = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 23]> g {head} {{ {body} }}')
    program = graft.compile(model, [backend], strict=True, without=["equal-dimensions"])
    random = np.random.default_rng(0)
    for n, m in ((3, 3), (1, 1), (1, 17), (17, 1), (7, 7), (2, 3)):
        arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes(n, m)]
        try:
            wanted = expected(*arrays)
        except ValueError:
            with pytest.raises(InputError, match="they must be equal"):
                program(*arrays)
            continue
        np.testing.assert_allclose(program(*arrays), wanted, rtol=1e-4, atol=1e-5)
