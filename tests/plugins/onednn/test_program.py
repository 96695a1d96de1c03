"""oneDNN regions inside whole programs: compiled, stitched, saved, loaded and run by the native executor."""

import numpy as np
import pytest

import graft
from graft.errors import RunError
from graft.plugins.onednn.backend import KIND
from graft.plugins.onednn.plugin import native_loader
from graft.runtime.loaders import NativeLoader
from graft.runtime.procedure import Call, Procedure, ProgramDescription, TensorSpec
from graft.runtime.program import Program
from tests.plugins.onednn.cases import CASES
from tests.plugins.onednn.models import Case, compile_region, needs_library

pytestmark = needs_library

MIXED = Case(
    "c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) e = Erf(r) d = Conv(e, v) y = Relu(d)",
    {"x": (1, 8, 10, 10)},
    {"w": (16, 8, 3, 3), "b": (16,), "v": (4, 16, 1, 1)},
)


def test_regions_of_two_backends_make_one_program():
    program = graft.compile(MIXED.proto(), backends=["onednn", "llvm"])
    got = program(MIXED.feeds()["x"])
    np.testing.assert_allclose(got, MIXED.expected()[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["attention", "residual_in_place", "output_reshaped_twice", "split"])
def test_a_program_of_one_region_runs(name):
    case = CASES[name]
    program = graft.compile(case.proto(), backends=["onednn"])
    got = program.run(case.feeds())
    for output, expected in zip(case.outputs, case.expected(), strict=True):
        np.testing.assert_allclose(got[output], expected, rtol=1e-3, atol=1e-4)


def description(input_shape: tuple[int, ...]) -> ProgramDescription:
    """Return a program that hands the region of case ``conv`` an input of some shape."""
    module = compile_region(CASES["conv"].region())
    tensors = (
        TensorSpec("x", "float32", input_shape, "input", index=0),
        TensorSpec("y", "float32", (2, 32, 7, 9), "output", index=0),
    )
    call = Call("call", (0,), (1,), module=0, function=module.functions[0], origin=("c",))
    return ProgramDescription((Procedure("main", tensors, (0,), (1,), (call,)),), (module,), {})


def test_a_program_that_passes_another_shape_is_stopped_before_oneDNN_reads():
    program = Program.from_description(description((2, 16, 9, 10)), loaders=[NativeLoader(KIND, native_loader())])
    with pytest.raises(RunError) as caught:
        program(np.zeros((2, 16, 9, 10), np.float32))
    assert "region 'onednn_0': input 'x' has another type or shape than it was compiled for" in caught.value.message
