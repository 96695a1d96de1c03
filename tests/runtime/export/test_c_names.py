"""Names, types and extents as C has them."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from graft.errors import ArtifactError
from graft.runtime.dtypes import ELEMENT_TYPES
from graft.runtime.export.c_names import TAKEN, TYPES, c_type, comment_text, extent_text, identifiers, model_name
from graft.runtime.export.c_text import helpers_for
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

A, B = Symbol("a"), Symbol("b")
SYMBOLS = {"a": "rows", "b": "(*columns)"}


def test_every_real_element_type_has_a_type_of_its_width() -> None:
    assert TYPES.keys() == ELEMENT_TYPES.keys() - {"complex64"}
    for name, kind in TYPES.items():
        bits = {"bool": 8, "float": 32, "double": 64}.get(kind) or int(re.sub(r"\D", "", kind))
        assert bits == ELEMENT_TYPES[name].bits


def test_a_type_that_c_does_not_have_is_refused_with_what_it_is_of() -> None:
    assert c_type("float16", "'x'") == "uint16_t"
    with pytest.raises(ArtifactError) as caught:
        c_type("complex64", "'x'")
    assert str(caught.value) == "'x' is complex64, which has no type in C; export the program as a library"


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["x", "y"], ["x", "y"]),
        (["a.b", "a b", "a_b"], ["a_b", "a_b_2", "a_b_3"]),
        (["int", "arena"], ["int_2", "arena_2"]),
        (["int64_t", "compl", "memcpy"], ["int64_t_2", "compl_2", "memcpy_2"]),
        (["INT8_MAX", "NAN", "I", "X", "INT"], ["int8_max", "nan", "i", "X", "int_2"]),
        (["", "_", "1x"], ["v", "v_2", "v1x"]),
        (["a__b", "a._b", "a_"], ["a_b", "a_b_2", "a"]),
        (["graft_run", "_x", "\u00e9t\u00e9"], ["vgraft_run", "v_x", "v_t"]),
        (["taken"], ["taken_2"]),
    ],
)
def test_identifiers_are_made_of_names_and_all_different(names: list[str], wanted: list[str]) -> None:
    found = identifiers(names, ["taken"])
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert not TAKEN & set(found.values())
    assert not any("__" in f"{one}_" for one in found.values()), "reserved in C++"
    assert list(found.values()) == wanted


def test_extents_are_expressions_over_the_identifiers() -> None:
    whole = Operation("sub", Operation("mul", 2, A), Operation("floordiv", B, 3))
    assert extent_text(whole, SYMBOLS) == "2 * rows - graft_floordiv((*columns), 3)"
    assert extent_text(Operation("max", Operation("mod", A, 4), Operation("add", A, 1)), SYMBOLS) == (
        "graft_most(graft_mod(rows, 4), rows + 1)"
    )


def test_a_comment_is_never_ended_by_what_it_says() -> None:
    assert comment_text("a */ b /* c\n\u00e9") == "a * / b / * c?\u00e9"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_computes_extents_as_the_runtime_does(tmp_path: Path) -> None:
    operators = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
    extents: list[Extent] = [Operation(operator, A, B) for operator in operators]  # type: ignore[arg-type]
    rows = "".join(f'printf("%d ", (int){extent_text(one, {"a": "a", "b": "b"})});' for one in extents)
    source = tmp_path / "extents.c"
    source.write_text(
        f"#include <stdint.h>\n#include <stdio.h>\n{helpers_for(rows)}\nint main(void) {{\n"
        "  for (int64_t a = -4; a <= 4; a++) for (int64_t b = -3; b <= 3; b++) if (b) {\n"
        f"    {rows}\n  }}\n  return 0;\n}}\n"
    )
    subprocess.run(["cc", str(source), "-o", str(tmp_path / "extents")], check=True)
    printed = subprocess.run([str(tmp_path / "extents")], check=True, capture_output=True, text=True).stdout
    values = [{"a": a, "b": b} for a, b in product(range(-4, 5), range(-3, 4)) if b]
    assert list(map(int, printed.split())) == [evaluate(one, value) for value in values for one in extents]


MEANT = {
    "main": "it is a word of C or C++; give another one, as in 'model_main'",
    "double": "it is a word of C or C++; give another one, as in 'model_double'",
    "graft": "it is the runtime's own name; give another one, as in 'model_graft'",
    "graft_digits": "it is like the names of the runtime, which begin with 'graft_'; give another one, as in "
    "'model_graft_digits'",
    "stdint": "it is the name of a header, 'stdint.h'; give another one, as in 'model_stdint'",
    "Limits": "it is the name of a header, 'limits.h'; give another one, as in 'model_Limits'",
    "linux": "it is a macro that compilers define; give another one, as in 'model_linux'",
    "digits_": "it is reserved in C++, where no name has two underscores together, as 'digits__run' would; give "
    "another one, as in 'model_digits'",
    "digits__v2": "it is reserved in C++, where no name has two underscores together, as 'digits__v2_run' would; give "
    "another one, as in 'model_digits_v2'",
    "_digits": "it is reserved for compilers and their libraries; give another one, as in 'model_digits'",
}


@pytest.mark.parametrize("name", MEANT)
def test_a_name_that_means_something_else_in_c_is_refused(name: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        model_name(name, "digits")
    assert str(caught.value) == f"'{name}' cannot be the name of a model in C: {MEANT[name]}"


@pytest.mark.parametrize(
    ("path", "name"),
    [("digits.so", "digits"), ("libdigits.so", "digits"), ("stdint", "model_stdint"), ("main", "model_main"),
     ("7.so", "model_7"), ("a-b", "a_b"), ("graft", "model_graft"), ("a_.onnx", "a"), ("_a--b", "model_a_b"),
     ("_", "model")],
)  # fmt: skip
def test_a_name_made_of_that_of_a_file_means_nothing_else(path: str, name: str) -> None:
    assert model_name(None, path) == name
