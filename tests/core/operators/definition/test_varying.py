"""What lowerings take of shapes that are known when kernels run: extents that results of earlier nodes say."""

import numpy as np
import onnx
import pytest

import graft

NOTHING, SOME = np.zeros(3, np.float32), np.array([1, 0, 2, 3], np.float32)
FOUND = "i = NonZero (x) a = Squeeze (i, ax) b = Cast <to = 1> (a)"
"""A result with an axis that only data know."""
GIVEN = "g (float[n] x, float[3] one) => (float[?] y) <int64[1] ax = {0}>"


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')


def in_reference(plan: graft.Plan) -> list[str]:
    """Return the operators that a plan gives to `reference`."""
    return sorted(one.op_type for one in plan.placements if one.backend == "reference")


@pytest.mark.parametrize(
    "rest",
    [
        "c = Concat <axis = 0> (b, one) d = Concat <axis = 0> (c, one) y = Neg (d)",
        "c = Concat <axis = 0> (b, one) d = Concat <axis = 0> (c, c) y = Mul (d, d)",
        "c = Concat <axis = 0> (b, one, b) d = Slice (c, ax, minus) y = Concat <axis = 0> (d, one)",
        "c = Concat <axis = 0> (b, x) d = Concat <axis = 0> (c, b) y = Concat <axis = 0> (d, x)",
    ],
)
def test_what_follows_a_found_extent_is_native(rest: str) -> None:
    text = f"{GIVEN[:-1]}, int64[1] minus = {{-1}}> {{ {FOUND} {rest} }}"
    model = model_of(text)
    assert set(in_reference(graft.plan(model, ["llvm", "reference"]))) <= {"NonZero"}
    program = graft.compile(model, ["llvm", "reference"])
    wanted = graft.compile(model, ["reference"])
    one = np.ones(3, np.float32)
    for given in (SOME, NOTHING, SOME[:1], np.ones(100, np.float32)):
        np.testing.assert_array_equal(program(given, one), wanted(given, one))
