"""Every operator of the table on ONNX's own cases: a new operator is tested without new code."""

import numpy as np
import pytest

from tests.core.operators.node_cases import all_cases, evaluate, make_constant, node_of, refusal


@pytest.mark.parametrize("name", sorted(all_cases()))
def test_lowering_gives_what_onnx_expects(name: str) -> None:
    case = all_cases()[name]
    view = node_of(case.model, case.inputs, case.outputs)
    names = [value.name for value in case.model.graph.input]
    arrays = dict(zip(names, case.inputs, strict=True))
    reject = refusal(view)
    if reject is not None and reject.code == "constant-required":
        make_constant(view, arrays)
        reject = refusal(view)
    if reject is not None:
        pytest.skip(f"{view.op_type}: {reject}")
    results = evaluate(view, arrays)
    for result, expected in zip(results, case.outputs, strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(
            result.astype(np.float64), expected.astype(np.float64), rtol=case.rtol, atol=case.atol
        )
