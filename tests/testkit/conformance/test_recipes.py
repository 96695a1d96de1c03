"""The kit holds a backend to the recipes that it states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graft.testkit.conformance.cases.outcome import Failure, NotClaimed
from graft.testkit.conformance.cases.quantized_layers import LARGEST, quantized_layers
from graft.testkit.conformance.kit import Kit
from graft.testkit.conformance.recipes import MIXED, NETWORKS, cases
from graft.testkit.conformance.regions import subjects
from tests.testkit.backends import plugin

STATED = """
Npu.recipes = ({"name": "rows", "nodes": ["MatMul"], "weights": {}, "activations": {}},)
"""
NARROW = """
Npu.recipes = ({"name": "all", "base": "int8"},)
"""
WRONG = (
    STATED
    + """
KERNELS["MatMul"] = lambda a, b: a @ b * np.float32(1.1)
KERNELS["npu.matmul_relu"] = lambda a, b: np.maximum(a @ b, 0) * np.float32(1.1)
"""
)
INTEGERS = """
import numpy as np
import graft
from graft.patterns import is_op, wildcard

def integers():
    return is_op("DequantizeLinear")(wildcard(), ...)

class Npu(graft.JsonBackend):
    name = "npu"
    quantized = True
    shapes = "static"
    recipes = ({"name": "own", "base": "int8", "results": True},)

    @graft.supports(is_op("QuantizeLinear")(is_op("Add")(integers(), integers()), ...), name="npu.sum")
    def sum(self, match):
        return True

    def load(self, graph, constants):
        def sum(x, s, z, y, t, w, r, p):
            numbers = (x.astype(np.float32) - z) * s + (y.astype(np.float32) - w) * t
            return np.clip(np.rint(numbers / r) + p, -128, 127).astype(np.int8)
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [sum(*arrays)])
"""


def outcomes(folder: Path, more: str, base: str = "", part: str = "") -> dict[str, str]:
    kit = Kit("npu", (str(plugin(folder, more, base) if base else plugin(folder, more)),))
    found = {}
    for subject in subjects(kit):
        for case in cases(kit, subject) if subject.startswith("recipe-") else ():
            if (part not in case.name) if part else "/layer-" in case.name:
                continue
            try:
                case.run()
                found[case.name] = ""
            except NotClaimed:
                found[case.name] = "not claimed"
            except Failure as failure:
                found[case.name] = failure.text
    return found


def test_a_recipe_of_what_the_backend_takes_passes(tmp_path):
    found = outcomes(tmp_path, STATED)
    assert list(found) == [f"3/recipe-rows/{name}" for name in (*NETWORKS, *MIXED)]
    assert found.pop("3/recipe-rows/rows") == ""
    assert set(found.values()) == {"not claimed"}


def test_a_node_that_is_quantised_and_left_is_a_failure(tmp_path):
    found = outcomes(tmp_path, NARROW)
    assert found["3/recipe-all/rows"] == ""
    assert found["3/recipe-all/convolutions"].startswith("leaves Conv '")
    assert found["3/recipe-all/average"].startswith("leaves AveragePool '")
    assert found["3/recipe-all/orders"] == "not claimed"


def test_a_wrong_result_is_a_failure(tmp_path):
    assert "instead of" in outcomes(tmp_path, WRONG)["3/recipe-rows/rows"]


def test_layers_are_the_hard_shapes_with_weights_as_constants_and_operands_off_zero():
    layers = dict(quantized_layers(("Softmax", "Sub")))
    assert {name.partition("-")[0] for name in layers} >= {"Add", "Conv", "Gemm", "AveragePool", "Softmax", "Sub"}
    assert "Mul" not in {name.partition("-")[0] for name in layers}
    for name, trial in layers.items():
        assert all(0 < array.size <= LARGEST and np.isfinite(array).all() for array in trial.feeds.values()), name
        assert [one.name for one in trial.proto.graph.input] == list(trial.feeds), name
    conv = next(trial for name, trial in layers.items() if name.startswith("Conv-"))
    assert (len(conv.feeds), len(conv.proto.graph.initializer)) == (1, 2)
    first, second = next(trial for name, trial in layers.items() if name.startswith("Add-")).feeds.values()
    assert second.std() > 2 * first.std()


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("", "", ""),
        ("(y.astype(np.float32) - w) * t", "(y.astype(np.float32) - w) * s", "instead of"),
        ("+ p, -128", "+ p + 1, -128", "rounding leaves 0.5"),
        ("np.rint(numbers / r)", "np.floor(numbers / r)", "rounding leaves 0.5"),
        ("np.rint(numbers / r)", "np.floor(numbers / r + 0.5)", ""),
    ],
)
def test_a_layer_is_held_in_steps_of_its_result_and_to_what_is_rounded(right, wrong, said, tmp_path):
    assert right in INTEGERS
    found = outcomes(tmp_path, "", INTEGERS.replace(right, wrong) if right else INTEGERS, "layer-Add-")
    assert len(found) == 5
    assert all(said in text and bool(text) == bool(said) for text in found.values()), found


def test_a_zero_point_that_is_one_off_is_found_though_few_results_show_it(tmp_path):
    found = outcomes(
        tmp_path, "", INTEGERS.replace("(x.astype(np.float32) - z)", "(x.astype(np.float32) - z - 1)"), "layer-Add-"
    )
    assert sum("rounding leaves 0.5" in text for text in found.values()) >= 4, found


@pytest.mark.parametrize("network", NETWORKS)
def test_accelerator_and_built_in_compiler_keep_their_promise(network):
    for backend in ("accelerator", "llvm"):
        kit = Kit(backend)
        for subject in (one for one in subjects(kit) if one.startswith("recipe-")):
            for case in cases(kit, subject):
                if case.name.endswith(network):
                    try:
                        case.run()
                    except NotClaimed:
                        assert (subject, network) == ("recipe-llvm-int4-weights", "average")
