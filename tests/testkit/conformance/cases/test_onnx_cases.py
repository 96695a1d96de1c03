"""ONNX's node tests by operator: those of one are all there, and bring those of few others."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from graft.testkit.conformance.cases.onnx_cases import tests_of as cases_of


@pytest.mark.parametrize(
    ("operator", "count", "one"),
    [
        ("Relu", 1, "test_relu"),
        ("Scan", 4, "test_scan9_sum"),
        ("ai.onnx.ml::Binarizer", 1, "test_ai_onnx_ml_binarizer"),
        ("Bernoulli", 0, None),
    ],
)
def test_an_operator_has_its_tests(operator: str, count: int, one: str | None) -> None:
    found = cases_of(operator)
    assert len(found) >= count if count else not found
    assert one is None or one in found
    assert all(trial.proto.graph.node[0].op_type == operator.rpartition("::")[2] for trial in found.values())


def test_a_test_of_what_is_no_tensor_of_numbers_is_left_out() -> None:
    assert cases_of("SequenceLength") == {} == cases_of("StringSplit")
    assert "test_identity" in cases_of("Identity")
    assert not {"test_identity_sequence", "test_identity_opt"} & cases_of("Identity").keys()
    for trial in cases_of("Identity").values():
        assert all(isinstance(array, np.ndarray) for array in (*trial.feeds.values(), *trial.expected.values()))


def test_functions_of_one_node_are_tests_of_that() -> None:
    assert any(name.startswith("test_castlike") for name in cases_of("Cast"))


def test_nothing_is_computed_but_what_is_asked_for() -> None:
    program = (
        "from graft.testkit.conformance.cases.onnx_cases import node_tests, tests_of\n"
        "tests_of('Relu')\nprint(*(one.name for one in node_tests._NodeTestCases))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name.removesuffix("_expanded_ver18") for name in done.stdout.split()} == {"test_relu"}
