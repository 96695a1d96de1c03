"""The derivative of every operator, on ONNX's own cases: against central differences along a drawn direction."""

from __future__ import annotations

import onnx
import pytest

from graft.core.differentiation.reverse import source_of
from graft.core.operators.all import OPERATORS
from tests.core.differentiation.differences import Case, cases, error, with_gradients

WITHOUT = {
    "Bernoulli": "random numbers", "CausalConvWithState": "float64",
    "LinearAttention": "types of its loop",
    "OptionalGetElement": "no rule", "Range": "whole numbers of steps",
    "Unique": "no rule", "Upsample": "no longer an operator",
}  # fmt: skip
"""Operators whose cases have no derivative here, and why."""
HARD = {
    "test_dequantizelinear_blocked": "scales of blocks",
    "test_maxpool_3d_default": "elements of one window that are closer than the step",
    "test_maxunpool_export_with_output_shape": "an output_shape",
    "test_roialign_mode_max": "the largest of samples",
    **dict.fromkeys(
        ("test_resize_upsample_sizes_nearest_not_larger", "test_resize_upsample_sizes_nearest_not_smaller",
         "test_resize_downsample_sizes_nearest_not_larger", "test_resize_downsample_sizes_nearest_not_smaller"),
        "a ratio of sides that is kept",
    ),
    **dict.fromkeys(
        ("test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
         "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal"), "an infinite result",
    ),
}  # fmt: skip
"""Cases without a derivative here, and why."""


OPERATORS_WITH = sorted(row.name for row in OPERATORS if not row.domain and source_of(row) and row.name not in WITHOUT)


def of(operator: str) -> list[Case]:
    found = [case for case in cases().get(operator, []) if case.name not in HARD]
    if not found:
        pytest.skip(f"ONNX has no case of {operator} with a derivative")
    return found


def check(case: Case) -> None:
    by = [name for name in case.by if not (case.operator == "RotaryEmbedding" and "cache" in name)]
    assert error(with_gradients(case.model, case.results, by), case.feeds, by) <= 1, case.name


@pytest.mark.parametrize("operator", OPERATORS_WITH[::3])
def test_a_derivative_is_the_limit_of_differences(operator: str) -> None:
    check(of(operator)[0])


@pytest.mark.conformance
@pytest.mark.parametrize("operator", OPERATORS_WITH)
def test_every_derivative_is_the_limit_of_differences(operator: str) -> None:
    for case in of(operator):
        check(case)


def test_every_operator_that_onnx_says_has_a_derivative_has_one() -> None:
    tagged = onnx.defs.OpSchema.DifferentiationCategory.Differentiable
    missing = set()
    for row in OPERATORS:
        if row.domain or not onnx.defs.has(row.name):
            continue
        schema = onnx.defs.get_schema(row.name)
        is_tagged = any(one.differentiation_category == tagged for one in schema.inputs)
        if is_tagged and not source_of(row) and not schema.deprecated:
            missing.add(row.name)
    assert not missing
