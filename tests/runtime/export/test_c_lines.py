"""Lines of C for people: the same value with fewer parentheses, no warning of a compiler, no line too wide."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from graft.runtime.export.c_lines import WIDTH, tidy, without_needless_parentheses, wrapped


@pytest.mark.parametrize(
    ("line", "tidied"),
    [
        ("x[((((a * 3) + b) + 1) * 4)] = (((a >= 0) && (a < 8)) ? y[(i)] : 0);",
         "x[(a * 3 + b + 1) * 4] = a >= 0 && a < 8 ? y[i] : 0;"),
        ("z = (a - (b + c)) + (d * e);", "z = a - (b + c) + d * e;"),
        ("z = ((a * b) / c) + ((a % b) % c);", "z = (a * b) / c + a % b % c;"),
        ("z = ((a << 2) & (b + 1)) | (c >> 3);", "z = ((a << 2) & (b + 1)) | (c >> 3);"),
        ("if (((a == b) && (c != d)) || (e)) f((x), (-1.0f));", "if ((a == b && c != d) || e) f(x, -1.0f);"),
        ("z = ((int32_t)((uint32_t)(a) + (b)));", "z = (int32_t)((uint32_t)a + b);"),
        ("z = a - (-1); z = -(-1); z = (-(x)) * y; z = (~(x));", "z = a - (-1); z = -(-1); z = -x * y; z = ~x;"),
        ("return (*(const int8x16_at *)&x[(i * 4)]);", "return *(const int8x16_at *)&x[i * 4];"),
        ("z = f(((float32x4){1, 2}), (a));", "z = f(((float32x4){1, 2}), a);"),
        ("z = ((DLTensor *)(y)); z = sizeof(x); z = (x)[1];", "z = (DLTensor *)y; z = sizeof(x); z = x[1];"),
        ('fail(context, "((%d))", (a));', 'fail(context, "((%d))", a);'),
        ("z = ((a", "z = ((a"), ("b) + c))", "b) + c))"), ("#define F(x) ((x) + 1)", "#define F(x) ((x) + 1)"),
    ],
)  # fmt: skip
def test_parentheses_that_say_nothing_are_gone(line: str, tidied: str) -> None:
    assert without_needless_parentheses(line) == tidied
    assert without_needless_parentheses(tidied) == tidied


def expression(draw: random.Random, depth: int) -> str:
    """A whole number of C with parentheses around every operation, divisors and shifts that are harmless."""
    if depth == 0:
        return draw.choice(["a", "b", "c", "7", "(-3)", "x[(a & 3)]"])
    one, other = (expression(draw, draw.randrange(depth)) for _ in range(2))
    kind = draw.randrange(12)
    if kind == 0:
        return f"({draw.choice('-~!')}{one})"
    if kind == 1:
        return f"((int64_t){one})"
    if kind == 2:
        return f"(({one} < {other}) ? {other} : {one})"
    if kind == 3:
        return f"({one} {draw.choice('/%')} (({other} & 7) + 9))"
    if kind == 4:
        return f"(({one} & 1023) {draw.choice(['<<', '>>'])} ({other} & 3))"
    if kind == 5:
        return f"f({one}, ({other}))"
    return f"({one} {draw.choice(['+', '-', '*', '&', '|', '^', '==', '!=', '<', '>=', '&&', '||'])} {other})"


def test_a_compiler_computes_the_same_and_advises_nothing(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    draw = random.Random(5)
    whole = [expression(draw, draw.randrange(1, 6)) for _ in range(400)]
    short = [without_needless_parentheses(one) for one in whole]
    assert sum(map(len, short)) < 0.9 * sum(map(len, whole))
    arrays = "".join(
        f"static void {name}(int64_t *z, int64_t a, int64_t b, int64_t c, const int64_t *x) {{\n"
        + "".join(f"  z[{number}] = {one};\n" for number, one in enumerate(rows))
        + "}\n"
        for name, rows in (("whole", whole), ("fewer", short))
    )
    (tmp_path / "main.c").write_text(
        f"#include <stdint.h>\n#include <stdio.h>\n"
        "static int64_t f(int64_t a, int64_t b) { return a * 31 + b; }\n"
        f"{arrays}int main(void) {{\n  static int64_t y[400], z[400];\n  const int64_t x[4] = {{5, -6, 7, 11}};\n"
        "  for (int64_t a = -4; a < 5; a += 3)\n    for (int64_t b = -7; b < 9; b += 5) {\n"
        "      whole(y, a, b, a * b + 1, x), fewer(z, a, b, a * b + 1, x);\n"
        '      for (int i = 0; i < 400; ++i) if (y[i] != z[i]) printf("%d\\n", i);\n    }\n}\n'
    )
    flags = ["-std=c11", "-fwrapv", "-Wparentheses", "-Wlogical-not-parentheses", "-Werror"]
    subprocess.run(["cc", *flags, "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout == ""


def test_wide_lines_are_broken_where_they_read_well() -> None:
    arguments = ", ".join(f"argument_{number}" for number in range(20))
    text = f"  status = f({arguments});\n/* {'word ' * 40}*/\n#if {' || '.join(['defined(X)'] * 20)}\n  short = 1;"
    broken = wrapped(text)
    assert max(map(len, broken.split("\n"))) <= WIDTH
    assert re.sub(r"\s+", " ", re.sub(r" \\\n|\n \* ", " ", broken)) == re.sub(r"\s+", " ", text)
    assert broken.split("\n")[1].startswith("      argument_") and wrapped(broken) == broken
    for whole in ("x" * 200, '#error "' + "word " * 40 + '"'):
        assert wrapped(whole) == whole


def test_a_tidy_text_is_both() -> None:
    line = "  z = (" + " + ".join(f"(value_{number} * 2)" for number in range(12)) + ");"
    assert "(" not in tidy(line) and max(map(len, tidy(line).split("\n"))) <= WIDTH


def test_wide_lines_of_a_macro_go_on_in_the_next_line() -> None:
    line = f"  static inline int a_long_name_##NAME({', '.join(f'int parameter{n}' for n in range(12))}) {{ \\"
    broken = wrapped(f"#define MACRO(NAME) \\\n{line}\n    return 0; \\\n  }}")
    assert all(len(one) <= 123 for one in broken.split("\n"))
    assert all(one.endswith(" \\") for one in broken.split("\n")[:-1])
    assert broken.replace("\\\n", "").split() == f"#define MACRO(NAME) {line[:-1]} return 0; }}".split()
