"""A sample of `tests.core.differentiation.random_cases`: derivatives of ONNX's own cases on drawn inputs."""

from __future__ import annotations

import pytest

from tests.core.differentiation.random_cases import run
from tests.core.differentiation.test_cases import of


@pytest.mark.parametrize("operator", ["Gather", "Softmax"])
def test_derivatives_on_drawn_inputs_are_limits_of_differences(operator: str) -> None:
    count = run(of(operator)[0], draws=20, seed=0)
    assert (count.wrong, count.compared + count.left_out) == (0, 20)
    assert count.compared > 10
