"""examples/torch: a module in posits, a vendor's plugin, one compiled layer in training; a plugin of others."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

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


def test_a_plugin_outside_of_the_tree_runs_unchanged(tmp_path, monkeypatch):
    from graft.torch import explain

    package = shutil.copytree(FOLDER.parent / "plugins" / "pebble" / "graft_pebble", tmp_path / "graft_pebble")
    library = package / f"_library{EXTENSION_SUFFIXES[0]}"
    build = ("cc", "-shared", "-fPIC", "-O2", "-Wl,-soname,libpebble.so.1", "-o", library, *package.glob("native/*.c"))
    subprocess.run([*build, "-lm"], check=True)
    monkeypatch.syspath_prepend(tmp_path)
    from graft_pebble.backend import Pebble

    layers = (torch.nn.Linear(16, 32, bias=False), torch.nn.ReLU(), torch.nn.LayerNorm(32), torch.nn.GELU())
    module, x = torch.nn.Sequential(*layers, torch.nn.Softmax(-1)).eval(), torch.randn(3, 16)
    options = {"backends": [Pebble(), "llvm"], "freeze": True, "strict": True}
    with torch.no_grad():
        explanation = explain(module, (x,), options=options)
        torch.testing.assert_close(torch.compile(module, backend="graft", options=options)(x), module(x))
    (plan,) = explanation.plans[0].values()
    assert {one.op_type for one in plan.placements if one.backend == "pebble"} >= {
        "MatMul", "Relu", "LayerNormalization", "Softmax"
    }  # fmt: skip
    assert "pebble 4" in str(explanation)
