"""Lines of C for people: none is too wide, and each is broken where it reads well."""

from __future__ import annotations

import re

from graft.runtime.export.c_lines import WIDTH, wrapped


def test_wide_lines_are_broken_where_they_read_well() -> None:
    arguments = ", ".join(f"argument_{number}" for number in range(20))
    text = f"  status = f({arguments});\n/* {'word ' * 40}*/\n#if {' || '.join(['defined(X)'] * 20)}\n  short = 1;"
    broken = wrapped(text)
    assert max(map(len, broken.split("\n"))) <= WIDTH
    assert re.sub(r"\s+", " ", re.sub(r" \\\n|\n \* ", " ", broken)) == re.sub(r"\s+", " ", text)
    assert broken.split("\n")[1].startswith("      argument_") and wrapped(broken) == broken
    for whole in ("x" * 200, '#error "' + "word " * 40 + '"'):
        assert wrapped(whole) == whole


def test_wide_lines_of_a_macro_go_on_in_the_next_line() -> None:
    line = f"  static inline int a_long_name_##NAME({', '.join(f'int parameter{n}' for n in range(12))}) {{ \\"
    broken = wrapped(f"#define MACRO(NAME) \\\n{line}\n    return 0; \\\n  }}")
    assert all(len(one) <= 123 for one in broken.split("\n"))
    assert all(one.endswith(" \\") for one in broken.split("\n")[:-1])
    assert broken.replace("\\\n", "").split() == f"#define MACRO(NAME) {line[:-1]} return 0; }}".split()
