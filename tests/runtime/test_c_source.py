"""The C functions of a module and their JSON form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from graft.runtime.c_source import (
    VARIES,
    CFunction,
    CSource,
    function_from_json,
    function_to_json,
    prelude,
    source_from_json,
    source_to_json,
)

FUNCTION = CFunction(
    "relu_0",
    "const float *x, float *y",
    (True, False),
    (False, True),
    64,
    ((4,), (8, 1, 0)),
    keeps=True,
    extents=(3, 128),
)
SOURCE = CSource("int x;", {"relu": FUNCTION}, ("-lopenblas",), ("cblas.h",), "cc -O2", "c")


@pytest.mark.parametrize("function", [FUNCTION, replace(FUNCTION, keeps=False), replace(FUNCTION, scratch=VARIES)])
def test_a_function_survives_its_json_form(function: CFunction) -> None:
    row = json.loads(json.dumps(function_to_json(function)))
    assert function_from_json(row) == function
    assert ("keeps" in row) == function.keeps


@pytest.mark.parametrize("source", [SOURCE, replace(SOURCE, language="cuda", functions={}), CSource("", {})])
def test_a_source_survives_its_json_form(source: CSource) -> None:
    row = json.loads(json.dumps(source_to_json(source, "modules/m.c")))
    assert row["member"] == "modules/m.c"
    assert ("language" in row) == (source.language != "c")
    assert source_from_json(row, source.text) == source


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"entry": 3}, TypeError),
        ({"parameters": None}, TypeError),
        ({"entry": "not a name"}, ValueError),
        ({"shapes": [1]}, ValueError),
        ({"scratch": -2}, ValueError),
        ({"scratch": "many"}, ValueError),
        ({"growing": [[4, 2, 0]]}, ValueError),
        ({"growing": [[4, 1]]}, ValueError),
        ({"growing": [[-4]]}, ValueError),
        ({"growing": 3}, TypeError),
        ({"strides": None}, TypeError),
    ],
)
def test_a_row_that_is_no_function_is_refused(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        function_from_json({**function_to_json(FUNCTION), **change})
    assert function_from_json({**function_to_json(FUNCTION), "scratch": 0}).scratch == 0


def test_a_function_of_another_length_says_what_it_is() -> None:
    with pytest.raises(ValueError, match="'relu_0' is not a C function with 2 shapes and 1 strides"):
        function_from_json({**function_to_json(FUNCTION), "strides": [0]})


@pytest.mark.parametrize("change", [{"compiler": 3}, {"libraries": [1]}, {"headers": None}, {"language": 1}])
def test_a_row_that_is_no_source_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        source_from_json({**source_to_json(SOURCE, "m"), **change}, "")


def test_a_declaration_has_name_and_parameters_and_the_prelude_is_a_header() -> None:
    assert FUNCTION.declaration == "int32_t relu_0(const float *x, float *y)"
    assert "GRAFT_PROJECT" in prelude()
