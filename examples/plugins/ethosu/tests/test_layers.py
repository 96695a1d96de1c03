"""Every lowering against ONNX's reference: at most one step of the result's scale apart, and whole on the NPU."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from quantised_models import MODELS

import graft

ELSEWHERE = {"quantise0", "quantise1", "meant"}
"""What stands between floats and integers, and is not for the NPU."""


def scale_of(model):
    return next(
        float(np.frombuffer(one.raw_data, np.float32)[0]) for one in model.graph.initializer if one.name == "y_scale"
    )


@pytest.mark.parametrize("accelerator", ["u55-128", "u65-512", "u85-256"])
@pytest.mark.parametrize("name", MODELS)
def test_a_layer_is_taken_whole_and_within_one_step(name, accelerator):
    model, backends = MODELS[name], [f"ethosu:accelerator={accelerator}", "llvm"]
    plan = graft.plan(model, backends)
    others = {row.node: row.reasons.get("ethosu") for row in plan.placements if row.backend != "ethosu"}
    others = {node: why for node, why in others.items() if why.code != "cost"}  # moves at the boundary yield
    assert {node for node in others if node not in ELSEWHERE} <= set(), others
    rng = np.random.default_rng(5)
    feeds = {
        one.name: rng.standard_normal([int(d.dim_value) for d in one.type.tensor_type.shape.dim]).astype(np.float32)
        for one in model.graph.input
    }
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    actual = graft.compile(model, backends, strict=True).run(feeds)["result"]
    steps = np.rint((actual - expected) / scale_of(model)).astype(int)
    assert np.abs(steps).max() <= 1
    assert (steps != 0).mean() < 0.05
    assert len(np.unique(actual)) > 1
