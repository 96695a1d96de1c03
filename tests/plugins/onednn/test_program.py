"""oneDNN regions inside whole programs: compiled, stitched, saved, loaded and run by the native executor."""

import numpy as np
import onnx.parser
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


EXTENTS_OF_ONE = {
    "transpose": Case("t = Transpose<perm = [0, 2, 1, 3]>(x) y = Mul(t, w)", {"x": (1, 1, 2, 4)}, {"w": (1, 1, 1, 4)}),
    "plain": Case("y = Mul(x, w)", {"x": (1, 2, 1, 4)}, {"w": (1, 1, 1, 4)}),
    "transposed_twice": Case(
        "t = Transpose<perm = [2, 0, 3, 1]>(x) u = Transpose<perm = [0, 2, 1, 3]>(t) y = Add(u, z)",
        {"x": (1, 3, 1, 4), "z": (1, 4, 1, 3)},
        {},
    ),
    "one_pixel": Case(
        "y = BatchNormalization(x, g, b, m, v)",
        {"x": (2, 16, 1, 1)},
        {"g": (16,), "b": (16,), "m": (16,), "v": np.linspace(0.1, 2, 16, dtype=np.float32)},
    ),
    "one_pixel_of_a_convolution": Case(
        "c = Conv(x, w) s = Mul(c, g) y = Add(s, b)",
        {"x": (2, 16, 3, 3)},
        {"w": (8, 16, 3, 3), "g": (8, 1, 1), "b": (1, 8, 1, 1)},
    ),
    "sliced_to_one": Case(
        "s = Slice(x, a, e, f) t = Transpose<perm = [1, 0, 2]>(s) y = Mul(t, w)",
        {"x": (3, 5, 7)},
        {"a": np.array([2]), "e": np.array([3]), "f": np.array([0]), "w": (1, 1, 7)},
    ),
}


@pytest.mark.parametrize("order", [list(EXTENTS_OF_ONE), list(EXTENTS_OF_ONE)[::-1]], ids=["as listed", "backwards"])
def test_strides_of_axes_of_extent_one_mean_nothing(order):
    """In one process: oneDNN keeps what it generated for one of them, and takes it for what it calls equal."""
    for name in order:
        case = EXTENTS_OF_ONE[name]
        got = graft.compile(case.proto(), backends=["onednn"], strict=True).run(case.feeds())
        np.testing.assert_allclose(got["y"], case.expected()[0], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("nodes", "outputs", "given"),
    [
        ("y = Unsqueeze(x, a)", "float[1,1,4] y", [0]),
        ("y = Squeeze(x, a)", "float[4] y", [0]),
        ("y, z = Split<axis = 1>(x, a)", "float[1,1] y, float[1,3] z", [1, 3]),
    ],
)
def test_a_shape_that_comes_at_run_time_is_refused(nodes, outputs, given):
    inputs = f"float[1,4] x, int64[{len(given)}] a"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    )
    plan = graft.plan(model, ["onednn", "llvm", "reference"])
    operator = model.graph.node[0].op_type
    assert str(plan.placements[0].reasons["onednn"]) == (
        f"constant-required: input 'a' of {operator} is computed at run time"
    )
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    got = graft.compile(model, strict=True).run({"x": x, "a": np.array(given)})
    np.testing.assert_array_equal(np.concatenate([one.ravel() for one in got.values()]), x.ravel())
