"""Operators of other domains as functions: what ONNX Runtime computes of them, by the built-in compiler alone."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import graft
from tests.core.operators.functions import attention_cases, fused_cases, learning_cases, quantized_cases

CASES = fused_cases.CASES | attention_cases.CASES | quantized_cases.CASES | learning_cases.CASES


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_operator_of_another_domain_is_native_and_right(name: str) -> None:
    case = CASES[name]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, ["CPUExecutionProvider"])
    expected = session.run(None, dict(case.feeds))
    found = graft.compile(case.model, backends=["llvm"]).run(dict(case.feeds))
    for result, wanted in zip(found.values(), expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        if not wanted.size:
            continue
        steps = wanted.dtype in (np.int8, np.uint8)
        limit = 1 if steps else case.tolerance * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=limit)


@pytest.mark.parametrize(
    ("name", "levels", "tables"),
    [("TreeReg SUM", 3, 5), ("TreeCls3 boosted", 3, 6), ("TreeReg of few nodes", 12, 35)],
)
def test_trees_are_walked_by_few_tables(name: str, levels: int, tables: int) -> None:
    """Features and splits of each level behind the first, and of its ends where trees are far from full.

    Besides, there are the values at the roots, the weights of the leaves, one for each tree, and the labels.
    """
    operators = [node.op_type for node in graft.load(CASES[name].model).graph]
    assert (operators.count("GatherElements"), operators.count("Where")) == (levels - 1, 0)
    assert operators.count("Gather") - 1 == tables
