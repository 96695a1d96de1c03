"""examples/torch: a module in posits, a vendor's plugin, one compiled layer in training."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

pytestmark = pytest.mark.filterwarnings("ignore")
FOLDER = Path(__file__).parents[2] / "examples" / "torch"


def main(name):
    return runpy.run_path(str(FOLDER / f"{name}.py"))["main"]


def test_a_module_in_posits_is_near_the_one_in_floats():
    assert 0 < main("posits")() < 1e-2


def test_a_vendors_regions_are_seen_in_the_explanation():
    explanation = main("vendor")()
    (plan,) = explanation.plans[0].values()
    assert {one.op_type: one.backend for one in plan.placements}["Gemm"] == "npu"
    assert len(plan.regions("npu")) == 2
    assert "npu 2" in str(explanation)


def test_a_compiled_layer_learns_with_the_rest():
    losses = main("one_layer")(30)
    assert losses[-1] < losses[0] / 4
