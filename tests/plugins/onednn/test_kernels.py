"""Every composite and operator, compiled and run by the real library, against ONNX Runtime."""

import numpy as np
import pytest

from graft.plugins.onednn.patterns import PATTERNS
from tests.plugins.onednn.cases import CASES
from tests.plugins.onednn.models import compile_region, kernel_names, load, needs_library, run


@needs_library
@pytest.mark.parametrize("name", CASES)
def test_a_region_computes_what_onnx_runtime_computes(name):
    case = CASES[name]
    region = case.region()
    loaded = load(compile_region(region))
    got = run(loaded, region, case.feeds())
    kernels = tuple(kernel for kernel in kernel_names(loaded) if kernel != "reorder")
    loaded.close()
    for output, expected in zip(case.outputs, case.expected(), strict=True):
        np.testing.assert_allclose(got[output], expected, rtol=1e-3, atol=1e-4)
    if case.kernels:
        assert kernels == case.kernels


def test_a_name_stands_once_in_the_pattern_table():
    names = [row.name for row in PATTERNS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("onednn.") for name in names)


def test_every_composite_has_a_case():
    assert {row.name for row in PATTERNS} <= {kernel for case in CASES.values() for kernel in case.kernels}
