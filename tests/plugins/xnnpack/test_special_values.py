"""NaN, infinities and zeros of both signs through XNNPACK: what it takes for a number is what it says that it does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.partition.policy import Policy
from graft.plugins.xnnpack.backend import XnnpackBackend
from graft.plugins.xnnpack.operators import ROWS
from tests.plugins.c_library import model

MISSING = XnnpackBackend().available()
needs_xnnpack = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, -3e38, 1e-8, 1.0, -1.0, 2.5, -2.5], np.float32)
IMAGE, MATRIX = "float[1,2,4,4]", "float[4,2]"
WEIGHTS = {"w": np.ones((2, 2, 1, 1), np.float32), "v": np.ones((2, 2), np.float32)}
KINDS = {
    "binary": f"(x, x)|{IMAGE}",
    "pool": f"<kernel_shape=[2,2], pads=[0,0,1,1]>(x)|{IMAGE}",
    "global pool": "(x)|float[1,2,1,1]",
    "convolution": f"(x, w)|{IMAGE}",
    "matmul": f"(x, v)|{MATRIX}",
    "gemm": f"(x, v)|{MATRIX}",
}
ELEMENTWISE = ("binary", "unary", "clamp", "slope", "elu")
FORMS = {name: f"y = {name}{KINDS.get(row.kind, f'(x)|{IMAGE}')}" for name, row in ROWS.items()}


def compiled(text: str, inputs: str, output: str, backend: str) -> graft.Program:
    made = model(text, inputs, f"{output} y")
    used = (onnx.numpy_helper.from_array(one, name) for name, one in WEIGHTS.items() if f" {name})" in text)
    made.graph.initializer.extend(used)
    program: graft.Program = graft.compile(made, [backend], strict=True, cache=False)
    return program


@needs_xnnpack
@pytest.mark.parametrize("name", FORMS)
def test_nan_is_a_number_only_in_the_operators_that_say_so(name: str) -> None:
    text, _, output = FORMS[name].partition("|")
    shape = (4, 2) if output == MATRIX else (1, 2, 4, 4)
    found = compiled(text, f"float[{','.join(map(str, shape))}] x", output, "xnnpack")(
        np.full(shape, np.nan, np.float32)
    )
    assert name in XnnpackBackend.loses_nan or np.isnan(found).all()


@needs_xnnpack
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.kind in ELEMENTWISE])
def test_what_is_a_number_or_infinite_is_right(name: str) -> None:
    feeds = [np.ravel(one).copy() for one in np.meshgrid(SPECIAL, SPECIAL)][: 1 + (ROWS[name].kind == "binary")]
    names = ["x", "z"][: len(feeds)]
    text, inputs = f"y = {name}({', '.join(names)})", ", ".join(f"float[144] {one}" for one in names)
    found, wanted = (compiled(text, inputs, "float[144]", one)(*feeds) for one in ("xnnpack", "llvm"))
    is_number = ~np.isnan(wanted)
    np.testing.assert_allclose(found[is_number], wanted[is_number], rtol=1e-5, atol=1e-37)


@needs_xnnpack
def test_placement_by_cost_gives_it_no_operator_that_it_loses_nans_in() -> None:
    made = graft.plan(
        model("c = Relu(x) y = HardSwish(c)", f"{IMAGE} x", f"{IMAGE} y"), ["xnnpack", "llvm"],
        policy=Policy(placement="model"),
    )  # fmt: skip
    assert str(made["c"].reasons["xnnpack"]) == (
        "accuracy: xnnpack takes a NaN for a number in Relu; allow it to be inaccurate to have that"
    )
    assert "xnnpack" not in made["y"].reasons or made["y"].reasons["xnnpack"].code != "accuracy"
