"""The four architectures of MLPerf Tiny."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from examples.models.tiny import TINY

PARAMETERS = {"resnet8": 77_706, "ds_cnn": 22_604, "mobilenet_v1": 210_850, "autoencoder": 265_864}


SLOW = ("mobilenet_v1", "resnet8")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TINY])
def test_a_model_is_valid_has_its_parameters_and_plans_its_arena_at_the_bound(name: str) -> None:
    proto = TINY[name](0)
    onnx.checker.check_model(proto, full_check=True)
    assert sum(int(np.prod(one.dims)) for one in proto.graph.initializer) == PARAMETERS[name]
    program = graft.compile(proto, ["llvm"])
    assert program.arena_bytes <= 1.05 * program.arena_bound


def test_a_model_computes_what_onnx_says() -> None:
    proto = TINY["ds_cnn"](0)
    image = np.random.default_rng(1).standard_normal((1, 1, 49, 10)).astype(np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, {"input": image})
    np.testing.assert_allclose(graft.compile(proto, ["llvm"])(image), expected, rtol=1e-4, atol=1e-5)
    assert TINY["ds_cnn"](0) == proto
    assert TINY["ds_cnn"](1) != proto
