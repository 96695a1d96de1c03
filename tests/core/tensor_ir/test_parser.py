import re

import numpy as np
import pytest

from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.errors import GraftError


def test_every_scalar_constant_is_exact():
    text = """\
function f(x: float32[]) -> (y: float64[]) {
  y[] = float64(0.1) + float64(1e-320) + float64(-inf) + float64(nan) + float64(-0.0)
}
"""
    assert str(parse_function(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("function f(", "tensor IR, line 1, column 12: expected a name, found the end of the text"),
        (
            "function f(x: float32[2]) -> (y: float32[2]) {\n  y[i] = 1\n}",
            "tensor IR, line 2, column 5: no variable 'i' is bound here, found 'i] = 1'",
        ),
        (
            "function f(x: float32[2]) -> (y: float32[2]) {\n  z[0] = x[0]\n}",
            "tensor IR, line 2, column 3: no buffer 'z' is declared here, found 'z[0] = x[0]'",
        ),
        (
            "function f(x: bool[2]) -> (y: bool[2]) {\n  y[0] = bool(false)\n}",
            "tensor IR, line 2, column 15: 'false' is no number, and neither True nor False, found 'false)'",
        ),
        ("function f() -> () {} }", "tensor IR, line 1, column 23: expected the end of the text, found '}'"),
        ("function f() $", "tensor IR, line 1, column 13: unexpected character, found ' $'"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(text, message):
    with pytest.raises(GraftError, match=f"^{re.escape(message)}$"):
        parse_function(text)


def test_a_parameter_says_what_tensor_it_is_where_it_is_indexed_by_other_extents():
    text = (
        "function double(x: float32[m * n + m] of [n, m] strides [s, 1]) -> (y: float32[n, m]) {\n"
        "  parallel i < n {\n"
        "    serial j < m {\n"
        "      y[i, j] = x[i * s + j] * float32(2.0)\n"
        "    }\n"
        "  }\n"
        "}\n"
    )
    function = parse_function(text)
    assert str(function) == text
    verify(function)
    x = np.arange(15, dtype=np.float32).reshape(3, 5)[:, :4]  # rows of four, five apart
    (found,) = run_function(function, [x], [(3, 4)])
    np.testing.assert_array_equal(found, 2 * x)
    with pytest.raises(AssertionError, match="'x' has rank 2, the array 1"):
        run_function(function, [x.reshape(-1)], [(3, 4)])
