"""ONNX's node suite through the whole way, by the built-in compiler and, below it, the reference."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from graft.errors import GraftError

from .onnx_suite import DIFFERENT, EVERY_NTH, REFUSED, Case, all_cases, listed


def _parameters() -> list[object]:
    names = list(all_cases())
    return [
        pytest.param(name, marks=[] if number % EVERY_NTH == 0 else pytest.mark.slow)
        for number, name in enumerate(names)
    ]


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs that the model leaves open."""
    return {
        value.name: case.inputs[value.name].shape
        for value in case.model.graph.input
        if case.tensors and not all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _parameters())
def test_a_case_of_the_onnx_suite_gives_what_onnx_expects(name: str) -> None:
    case = all_cases()[name]
    if listed(name, REFUSED):
        with pytest.raises(GraftError):
            graft.compile(case.model, ["llvm", "reference"], threads=1, shapes=_shapes(case) or None)
        return
    assert case.tensors
    program = graft.compile(case.model, ["llvm", "reference"], threads=1, shapes=_shapes(case) or None)
    results = program.run(case.inputs)
    for output, expected in case.outputs.items():
        result = results[output]
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        if listed(name, DIFFERENT):
            continue
        wide = np.complex128 if np.iscomplexobj(expected) else np.float64
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), case.rtol, case.atol)
