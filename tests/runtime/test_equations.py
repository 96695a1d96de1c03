"""Equations of extents in programs: checked when their symbols are bound, before what begins later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.errors import ArtifactError, InputError
from graft.runtime.artifact import save
from graft.runtime.extents import Agreement, ExtentEquation, Operation
from graft.runtime.loading import load
from graft.runtime.procedure import AxisReason, Call, SymbolSpec, procedure_from_json, procedure_to_json
from graft.runtime.program import Program

from .artifacts import LOADER, changed
from .programs import call, describe, tensor
from .symbolic import FOUND, PAST, SEQ, ones, procedure, program

SAYS = ("Add (node 'y'): axis 0 of 'x' is ", " and axis 0 of 'z' is ", "; they must agree")
X = tensor("x", "float32", [SEQ], "input", index=0)
Z = tensor("z", "float32", [PAST], "input", index=1)
SYMBOLS = (SymbolSpec("seq", 0, None, 0, 0), SymbolSpec("past", 0, None, 1, 0))


def copying(*equations: ExtentEquation) -> Program:
    """y = x, with another input z."""
    y = tensor("y", "float32", [SEQ], "output", index=0)
    return program((X, Z, y), [Call("copy", (0,), (2,))], SYMBOLS, {}, equations=equations)


@pytest.mark.parametrize(
    ("kind", "agree", "differ"),
    [
        ("equal", [(2, 2), (0, 0)], [(2, 3), (1, 2), (2, 1), (0, 1)]),
        ("broadcast", [(2, 2), (1, 5), (5, 1), (0, 1)], [(2, 3), (0, 5)]),
        ("expand", [(2, 2), (1, 5)], [(2, 3), (5, 1), (0, 1)]),
        ("at most", [(2, 2), (1, 5), (0, 0)], [(3, 2), (5, 1)]),
    ],
)
def test_sides_agree_or_the_call_is_refused(
    kind: Agreement, agree: list[tuple[int, int]], differ: list[tuple[int, int]]
) -> None:
    run = copying(ExtentEquation(SEQ, PAST, kind, SAYS))
    for left, right in agree:
        assert run(ones(left), ones(right)).shape == (left,)
        for one, other in differ:
            with pytest.raises(InputError) as caught:
                run(ones(one), ones(other))
            assert caught.value.message == (
                f"Add (node 'y'): axis 0 of 'x' is {one} and axis 0 of 'z' is {other}; they must agree"
            )
            with pytest.raises(InputError):  # the same once more: nothing is remembered of a call that was refused
                run(ones(one), ones(other))


def test_sides_are_sums_and_numbers() -> None:
    run = copying(
        ExtentEquation(Operation("add", SEQ, PAST), 8, "at most", ("the sum is ", "; it must be at most ", "")),
        ExtentEquation(3, SEQ, "at most", ("at least ", " is wanted where 'x' has ", "")),
    )
    assert run(ones(3), ones(5)).shape == (3,)
    for seq, past, message in (
        (4, 5, "the sum is 9; it must be at most 8"),
        (2, 5, "at least 3 is wanted where 'x' has 2"),
    ):
        with pytest.raises(InputError) as caught:
            run(ones(seq), ones(past))
        assert caught.value.message == message


def test_what_a_call_tells_is_checked_before_the_next_call() -> None:
    ran: list[str] = []

    def counting(given: list[Any]) -> list[Any]:
        ran.append("count")
        return [given[0][given[0] != 0]]

    def joining(given: list[Any]) -> list[Any]:
        ran.append("join")
        return [given[0] + given[1]]

    tensors = (
        X, Z, tensor("v", "float32", [FOUND], "dynamic"), tensor("y", "float32", [PAST], "output", index=0),
    )  # fmt: skip
    symbols = (*SYMBOLS, SymbolSpec("found", 0, None, 2, 0))
    calls = [call("count", [0], [2]), call("join", [2, 1], [3])]
    equation = ExtentEquation(FOUND, PAST, "equal", SAYS)
    run = program(tensors, calls, symbols, {"count": counting, "join": joining}, equations=[equation])
    assert list(run(np.array([1, 0, 2], np.float32), ones(2))) == [2, 3]
    ran.clear()
    with pytest.raises(InputError) as caught:
        run(np.array([1, 0, 2], np.float32), ones(3))
    assert (ran, "is 2 and axis 0 of 'z' is 3" in caught.value.message) == (["count"], True)


def test_the_message_of_an_axis_is_that_of_who_demands_it() -> None:
    tensors = (X, tensor("z", "float32", [SEQ], "input", index=1), tensor("y", "float32", [SEQ], "output", index=0))
    reason = AxisReason(1, 0, ("Add (node 'y'): axis 0 of 'z' is ", " and axis 0 of 'x' is ", "; they must be equal"))
    run = program(tensors, [Call("copy", (0,), (2,))], SYMBOLS[:1], {}, reasons=[reason])
    assert run(ones(3), ones(3)).shape == (3,)
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            run(ones(3), ones(4))
        assert caught.value.message == ("Add (node 'y'): axis 0 of 'z' is 4 and axis 0 of 'x' is 3; they must be equal")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An artifact with an equation and a reason."""
    tensors = (X, Z, tensor("y", "float32", [SEQ], "output", index=0))
    one = procedure("main", tensors, [call("f", [0, 0], [2])], SYMBOLS)
    equation = ExtentEquation(SEQ, Operation("mul", 2, PAST), "equal", SAYS)
    one = replace(one, equations=(equation,), reasons=(AxisReason(1, 0, SAYS),))
    assert procedure_from_json(procedure_to_json(one)) == one
    save(describe((one,), ["f"]), tmp_path / "a.graft")
    return tmp_path / "a.graft"


def test_an_artifact_with_equations_has_a_format_of_its_own(path: Path) -> None:
    def check(manifest: Any) -> None:
        assert manifest["format"] == 4

    changed(path.read_bytes(), check)
    with pytest.raises(InputError, match="axis 0 of 'x' is 2 and axis 0 of 'z' is 6; they must agree"):
        load(path, threads=1, loaders=[LOADER])(ones(2), ones(3))


EQUATION = "entry 0 of 'equations' is not two extents that agree"


@pytest.mark.parametrize(
    ("key", "field", "value", "said"),
    [
        ("equations", "kind", "nearly", EQUATION),
        ("equations", "left", "s7", EQUATION),
        ("equations", "right", None, EQUATION),
        ("equations", "says", ["a", "b"], EQUATION),
        ("equations", "says", ["a", "b", 3], EQUATION),
        ("reasons", "tensor", 9, "'tensor' is 9"),
        ("reasons", "axis", -1, "'axis' is -1"),
        ("reasons", "says", "abc", "entry 0 of 'reasons' has no message of three parts"),
    ],
)
def test_a_damaged_one_is_refused(path: Path, key: str, field: str, value: Any, said: str) -> None:
    def damage(manifest: Any) -> None:
        manifest["procedures"][0][key][0][field] = value

    change: Callable[[Any], None] = damage
    path.write_bytes(changed(path.read_bytes(), change))
    with pytest.raises(ArtifactError) as caught:
        load(path, threads=1, loaders=[LOADER])
    assert said in str(caught.value) or "damaged" in str(caught.value)
