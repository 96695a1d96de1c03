"""Arrays are put in the order of inputs, and names that are wrong are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from graft.errors import InputError
from graft.runtime.tensor_info import TensorInfo, did_you_mean, in_order, quoted

INPUTS = [TensorInfo(name, "float32", (2,)) for name in ("query", "key", "value")]


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((1, 2, 3), {}),
        ((1,), {"value": 3, "key": 2}),
        ((), {"value": 3, "query": 1, "key": 2}),
    ],
)
def test_positional_arrays_stand_for_the_first_inputs(positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    assert in_order(INPUTS, positional, named) == (1, 2, 3)


@pytest.mark.parametrize(
    ("positional", "named", "message"),
    [
        ((1, 2), {}, "missing input 'value'; the program takes 'query', 'key', 'value'"),
        ((1,), {}, "missing inputs 'key', 'value'; the program takes 'query', 'key', 'value'"),
        ((1, 2), {"key": 2, "value": 3}, "input 'key' is given twice: by position and by name"),
        ((1, 2), {"valeu": 3}, "no input 'valeu'; the program takes 'query', 'key', 'value'; did you mean 'value'?"),
        ((1, 2, 3), {"mask": 4}, "no input 'mask'; the program takes 'query', 'key', 'value'"),
    ],
)
def test_a_wrong_name_is_told(positional: tuple[Any, ...], named: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        in_order(INPUTS, positional, named)
    assert str(caught.value) == message


def test_a_program_without_inputs_takes_none() -> None:
    assert in_order([], (), {}) == ()
    with pytest.raises(InputError) as caught:
        in_order([], (), {"x": 1})
    assert str(caught.value) == "no input 'x'; the program takes none"


def test_a_shape_of_numbers_is_static_and_any_other_is_not() -> None:
    shapes: list[tuple[int | str, ...] | None] = [(2, 3), (), (2, "n"), None]
    infos = [TensorInfo("x", "int8", shape) for shape in shapes]
    assert [info.static_shape for info in infos] == [(2, 3), (), None, None]
    assert list(map(str, infos)) == ["int8[2,3]", "int8[]", "int8[2,n]", "int8"]


def test_hints_name_the_nearest_and_names_are_quoted() -> None:
    assert did_you_mean("qurey", ["query", "key"]) == "; did you mean 'query'?"
    assert did_you_mean("zzz", ["query", "key"]) == ""
    assert quoted(["a", "b"]) == "'a', 'b'"
