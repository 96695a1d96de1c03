"""The kit holds a backend to the recipes that it states."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.testkit.conformance.cases.outcome import Failure, NotClaimed
from graft.testkit.conformance.kit import Kit
from graft.testkit.conformance.recipes import NETWORKS, cases
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


def outcomes(folder: Path, more: str) -> dict[str, str]:
    kit = Kit("npu", (str(plugin(folder, more)),))
    found = {}
    for subject in subjects(kit):
        for case in cases(kit, subject) if subject.startswith("recipe-") else ():
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
    assert list(found) == [f"3/recipe-rows/{name}" for name in NETWORKS]
    assert found.pop("3/recipe-rows/rows") == ""
    assert set(found.values()) == {"not claimed"}


def test_a_node_that_is_quantised_and_left_is_a_failure(tmp_path):
    found = outcomes(tmp_path, NARROW)
    assert found["3/recipe-all/rows"] == ""
    assert found["3/recipe-all/convolutions"].startswith("leaves Conv '")
    assert found["3/recipe-all/average"].startswith("leaves AveragePool '")


def test_a_wrong_result_is_a_failure(tmp_path):
    assert "instead of" in outcomes(tmp_path, WRONG)["3/recipe-rows/rows"]


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
