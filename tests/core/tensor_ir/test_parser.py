import re

import pytest

from graft.core.tensor_ir.parser import parse_function
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
        ("function f() -> () {} }", "tensor IR, line 1, column 23: expected the end of the text, found '}'"),
        ("function f() $", "tensor IR, line 1, column 13: unexpected character, found ' $'"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(text, message):
    with pytest.raises(GraftError, match=f"^{re.escape(message)}$"):
        parse_function(text)
