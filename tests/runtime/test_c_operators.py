"""Operations of C as text: no parentheses but those that change the value, and those that compilers advise."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from graft.runtime.c_operators import Operation, cast, choice, infix, postfix, prefix, product


def chain(*parts: str) -> str:
    """Return operations from left to right, as in ``chain("a", "+", "b", "*", "c")``, which is (a + b) * c."""
    text = parts[0]
    for sign, right in zip(parts[1::2], parts[2::2], strict=True):
        text = infix(text, sign, right)
    return text


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (chain("a", "*", "3", "+", "b", "+", "1", "*", "4"), "(a * 3 + b + 1) * 4"),
        (choice(chain("a", ">=", "0"), "x", "y"), "a >= 0 ? x : y"),
        (infix(chain("a", "-", chain("b", "+", "c")), "+", chain("d", "*", "e")), "a - (b + c) + d * e"),
        (infix(chain("a", "*", "b", "/", "c"), "+", chain("a", "%", "b", "%", "c")), "(a * b) / c + a % b % c"),
        (infix(chain("a", "<<", "2", "&", chain("b", "+", "1")), "|", chain("c", ">>", "3")),
         "((a << 2) & (b + 1)) | (c >> 3)"),
        (infix(infix(chain("a", "==", "b"), "&&", chain("c", "!=", "d")), "||", "e"), "(a == b && c != d) || e"),
        (cast("int32_t", infix(cast("uint32_t", "a"), "+", "b")), "(int32_t)((uint32_t)a + b)"),
        (infix("a", "-", prefix("-", "1")), "a - (-1)"), (prefix("-", prefix("-", "x")), "-(-x)"),
        (infix(prefix("-", "x"), "*", "y"), "-x * y"), (prefix("~", prefix("-", "x")), "~-x"),
        (infix(prefix("!", "x"), "&&", "y"), "(!x) && y"), (prefix("!", chain("a", "==", "b")), "!(a == b)"),
        (prefix("*", cast("const int8x16_at *", prefix("&", "x[i]"))), "*(const int8x16_at *)&x[i]"),
        (cast("float", chain("a", "*", "b")), "(float)(a * b)"), (postfix(chain("a", "+", "b"), ".x"), "(a + b).x"),
        (postfix("x", "[1]"), "x[1]"), (infix(choice("a", "b", "c"), "+", "d"), "(a ? b : c) + d"),
        (product([chain("a", "+", "b"), "4", cast("long", "c")]), "(a + b) * 4 * (long)c"), (product([]), "1"),
    ],
)  # fmt: skip
def test_parentheses_stand_where_they_say_something(made: str, text: str) -> None:
    assert made == text


class Pair:
    """An expression, written with care and with parentheses around every operation."""

    def __init__(self, text: str, whole: str) -> None:
        self.text, self.whole = text, whole


def expression(draw: random.Random, depth: int) -> Pair:
    """A whole number of C; divisors and shifts are harmless."""
    if depth == 0:
        name = draw.choice(["a", "b", "c", "7", "x[a & 3]", "-3"])
        return Pair(Operation(name, "-", 25) if name == "-3" else name, f"({name})")
    one, other = (expression(draw, draw.randrange(depth)) for _ in range(2))

    def pair(left: Pair, sign: str, right: Pair) -> Pair:
        return Pair(infix(left.text, sign, right.text), f"({left.whole} {sign} {right.whole})")

    def number(value: int) -> Pair:
        return Pair(str(value), str(value))

    match draw.randrange(12):
        case 0:
            sign = draw.choice("-~!")
            return Pair(prefix(sign, one.text), f"({sign}{one.whole})")
        case 1:
            return Pair(cast("int64_t", one.text), f"((int64_t){one.whole})")
        case 2:
            asked = pair(one, "<", other)
            return Pair(choice(asked.text, other.text, one.text), f"({asked.whole} ? {other.whole} : {one.whole})")
        case 3:
            return pair(one, draw.choice("/%"), pair(pair(other, "&", number(7)), "+", number(9)))
        case 4:
            shift = pair(other, "&", number(3))
            return pair(pair(one, "&", number(1023)), draw.choice(["<<", ">>"]), shift)
        case 5:
            return Pair(f"f({one.text}, {other.text})", f"f({one.whole}, {other.whole})")
    sign = draw.choice(["+", "-", "*", "&", "|", "^", "==", "!=", "<", ">=", "&&", "||"])
    return pair(one, sign, other)


def test_a_compiler_computes_the_same_and_advises_nothing(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    draw = random.Random(5)
    made = [expression(draw, draw.randrange(1, 6)) for _ in range(400)]
    assert sum(len(one.text) for one in made) < 0.8 * sum(len(one.whole) for one in made)
    functions = "".join(
        f"static void {name}(int64_t *z, int64_t a, int64_t b, int64_t c, const int64_t *x) {{\n"
        + "".join(f"  z[{number}] = {one};\n" for number, one in enumerate(rows))
        + "}\n"
        for name, rows in (("whole", [one.whole for one in made]), ("fewer", [one.text for one in made]))
    )
    (tmp_path / "main.c").write_text(
        f"#include <stdint.h>\n#include <stdio.h>\n"
        "static int64_t f(int64_t a, int64_t b) { return a * 31 + b; }\n"
        f"{functions}int main(void) {{\n  static int64_t y[400], z[400];\n  const int64_t x[4] = {{5, -6, 7, 11}};\n"
        "  for (int64_t a = -4; a < 5; a += 3)\n    for (int64_t b = -7; b < 9; b += 5) {\n"
        "      whole(y, a, b, a * b + 1, x), fewer(z, a, b, a * b + 1, x);\n"
        '      for (int i = 0; i < 400; ++i) if (y[i] != z[i]) printf("%d\\n", i);\n    }\n}\n'
    )
    flags = ["-std=c11", "-fwrapv", "-Wparentheses", "-Wlogical-not-parentheses", "-Werror"]
    subprocess.run(["cc", *flags, "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout == ""
