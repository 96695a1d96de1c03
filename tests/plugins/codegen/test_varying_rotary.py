"""RotaryEmbedding over a varying batch and length, native, against onnx.reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.reject import Reject
from graft.errors import InputError
from graft.plugins.llvm.backend import LlvmBackend
from tests.plugins.llvm.graphs import HEADER, region_of

PLACED = (
    "g (float[b,s,24] x, float[50,4] c, float[50,4] n, int64[b,s] p) => (float[b,s,24] y)"
    " { y = RotaryEmbedding <num_heads = 3> (x, c, n, p) }"
)
WHOLE = "g (float[b,3,s,8] x, float[b,s,4] c, float[b,s,4] n) => (float[b,3,s,8] y) { y = RotaryEmbedding (x, c, n) }"


@pytest.mark.parametrize("text", [PLACED, WHOLE], ids=["positions", "angles"])
def test_any_length_is_rotated_by_its_angles(text: str) -> None:
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    program, evaluator = graft.compile(model, backends=["llvm"], threads=1), ReferenceEvaluator(model)
    random = np.random.default_rng(0)
    for batch, length in ((1, 1), (2, 37), (3, 5)):
        shape = (batch, 3, length, 8) if text is WHOLE else (batch, length, 24)
        angles = (batch, length, 4) if text is WHOLE else (50, 4)
        feeds = {name: random.standard_normal(angles).astype(np.float32) for name in ("c", "n")}
        feeds["x"] = random.standard_normal(shape).astype(np.float32)
        if text is PLACED:
            feeds["p"] = random.integers(0, 50, (batch, length))
        np.testing.assert_allclose(program.run(feeds)["y"], evaluator.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


def test_angles_of_a_length_of_their_own_are_those_of_the_place_or_of_all() -> None:
    text = WHOLE.replace("float[b,s,4] c", "float[b,t,4] c").replace("float[b,s,4] n", "float[b,t,4] n")
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    program, evaluator = graft.compile(model, backends=["llvm"], strict=True), ReferenceEvaluator(model)
    for length in (5, 1):
        shapes = {"x": (2, 3, 5, 8), "c": (2, length, 4), "n": (2, length, 4)}
        feeds = {
            name: np.random.default_rng(0).standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }
        whole = {name: np.broadcast_to(array, (2, 5, 4)) if name != "x" else array for name, array in feeds.items()}
        np.testing.assert_allclose(program.run(feeds)["y"], evaluator.run(None, whole)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="they must be equal, or the first 1"):
        program.run({**feeds, "c": feeds["c"].repeat(4, 1), "n": feeds["n"].repeat(4, 1)})


@pytest.mark.parametrize("text", [PLACED, WHOLE], ids=["positions", "angles"])
@pytest.mark.parametrize("static", [True, False])
def test_angles_of_one_batch_are_those_of_all(text: str, static: bool) -> None:
    shared = text.replace("int64[b,s] p", "int64[1,s] p").replace("float[b,s,4]", "float[1,s,4]")
    if static:
        shared = shared.replace("[b,", "[3,").replace(",s", ",5")
    model = onnx.parser.parse_model(f"{HEADER} {shared}")
    random, angles = np.random.default_rng(0), (1, 5, 4) if text is WHOLE else (50, 4)
    feeds = {name: random.standard_normal(angles).astype(np.float32) for name in ("c", "n")}
    feeds["x"] = random.standard_normal((3, 3, 5, 8) if text is WHOLE else (3, 5, 24)).astype(np.float32)
    if text is PLACED:
        feeds["p"] = random.integers(0, 50, (1, 5))
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    found = graft.compile(model, backends=["llvm"], threads=1).run(feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_angles_of_another_number_are_refused() -> None:
    text = WHOLE.replace("b,", "2,").replace("s,", "5,")
    (node,) = region_of(text.replace("float[2,5,4] c", "float[2,4,4] c")).nodes()
    assert LlvmBackend().supports(node) == Reject("shape", "axis 1 of 'c' is 4 where 'x' has 5")
