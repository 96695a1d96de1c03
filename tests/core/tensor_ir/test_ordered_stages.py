"""Scans, scatters and selections: their text, what they mean in the interpreter, what the verifier refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Buffer, Stage
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.printer import print_stages
from graft.core.tensor_ir.verifying.verifier import verify_stages
from graft.core.tensor_ir.visit import loads
from graft.errors import CompileError

SUMS = """\
input x: float32[3, 4]
stage y: float32[3, 4] at (i, t) = y[i, t - 1] + x[i, t]
  scan t from float32(0.0)
"""
BACKWARDS = """\
input x: float32[3, 4]
input first: float32[3]
stage y: float32[3, 4] at (i, t) = y[i, t + 1] * x[i, t]
  scan t reverse from first[i]
"""
NETWORK = """\
carry state: float32[5, 2]
input r: float32[2, 2]
input x: float32[5, 2]
stage sum: float32[5, 2] at (t, i) = reduce add over k < 2 from x[t, i]: state[t - 1, k] * r[k, i]
  scan t
input first: float32[2]
stage state: float32[5, 2] at (t, j) = tanh(sum[t, j])
  scan t from first[j]
stage last: float32[2] at (m) = state[4, m]
"""
ADDED = """\
input x: float32[4, 3]
input places: int64[6]
input u: float32[6, 3]
stage y: float32[4, 3] at (i, j) = x[i, j]
  scatter add over k < 6, l < 3 at (places[k], l): u[k, l]
"""
CHOSEN = """\
input x: float32[3, 6]
stage y: int64[3, 4] at (i, j) = choose largest over k < 6 by j: x[i, k]
"""
EVERY = {"sums": SUMS, "backwards": BACKWARDS, "network": NETWORK, "added": ADDED, "chosen": CHOSEN}


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def run(text: str, **arrays: np.ndarray) -> np.ndarray:
    """The buffer of the last stage; arrays by the names of the buffers."""
    stages = parse_stages(text)
    found = {load.name: load for stage in stages for load in buffers(stage)}
    return run_stages(stages, {found[name]: array for name, array in arrays.items()})[stages[-1].buffer]


def buffers(stage: Stage) -> set[Buffer]:
    return {load.buffer for load in loads(*stage_expressions(stage))}


@pytest.mark.parametrize("name", EVERY)
def test_the_text_of_an_order_is_read_back(name: str) -> None:
    stages = parse_stages(EVERY[name])
    verify_stages(stages)
    assert print_stages(parse_stages(print_stages(stages))) == print_stages(stages)
    assert sorted(print_stages(stages).splitlines()) == sorted(EVERY[name].splitlines())


def test_a_scan_reads_what_it_stored_before() -> None:
    x = uniform(3, 4)
    np.testing.assert_allclose(run(SUMS, x=x), np.cumsum(x, 1), rtol=1e-6)


def test_a_scan_in_reverse_starts_at_the_last_position() -> None:
    x, first = uniform(3, 4), uniform(3)
    expected = np.cumprod(np.c_[first, x[:, ::-1]], 1)[:, :0:-1]
    np.testing.assert_allclose(run(BACKWARDS, x=x, first=first), expected, rtol=1e-6)


def test_stages_that_share_the_carried_axis_are_one_loop() -> None:
    x, r, first = uniform(5, 2), uniform(2, 2), uniform(2)
    state = first
    for row in x:
        state = np.tanh(row + state @ r)
    np.testing.assert_allclose(run(NETWORK, x=x, r=r, first=first), state, rtol=1e-6)


@pytest.mark.parametrize(("operator", "combined"), [("add", np.add), ("mul", np.multiply), ("max", np.maximum)])
def test_a_scatter_combines_every_update_with_what_its_place_holds(operator: str, combined: np.ufunc) -> None:
    x, u, places = uniform(4, 3), uniform(6, 3), np.array([0, 2, 2, 3, 0, 2])
    expected = x.copy()
    combined.at(expected, places, u)
    text = ADDED.replace("scatter add", f"scatter {operator}")
    np.testing.assert_allclose(run(text, x=x, u=u, places=places), expected, rtol=1e-6)


def test_the_last_of_the_updates_that_are_set_at_a_place_stays() -> None:
    x, u, places = uniform(4, 3), uniform(6, 3), np.array([0, 2, 2, 3, 0, 2])
    result = run(ADDED.replace("scatter add", "scatter set"), x=x, u=u, places=places)
    np.testing.assert_array_equal(result, np.stack([u[4], x[1], u[5], u[3]]))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([-1.0, 0.0, 2.0, np.nan, -np.inf]), min_size=6, max_size=6), st.booleans())
def test_a_selection_orders_by_key_then_by_position(row: list[float], largest: bool) -> None:
    x = np.array([row] * 3, np.float32)
    sign = -1 if largest else 1
    keys = [(sign * np.isnan(key), 0 if np.isnan(key) else sign * key, place) for place, key in enumerate(row)]
    text = CHOSEN if largest else CHOSEN.replace("largest", "smallest")
    assert run(text, x=x)[1].tolist() == [place for *_, place in sorted(keys)][:4]


REFUSED = {
    "two positions back": (
        SUMS.replace("t - 1", "t - 2"),
        "a scan reads its loop at 't - 1', not 'y[i, t - 2]'",
    ),
    "ahead in its loop": (
        NETWORK.replace("state[t - 1, k]", "state[t, k]"),
        "a scan reads its loop at 't - 1', not 'state[t, k]'",
    ),
    "no initial value": (
        SUMS.replace(" from float32(0.0)", ""),
        "'y' is read before its first position and has no initial value",
    ),
    "initial value of another type": (
        SUMS.replace("float32(0.0)", "0"),
        "the scan starts from int64, the buffer is float32",
    ),
    "a place outside": (
        ADDED.replace("places[k], l", "k, l"),
        "index 0 to 5 leaves dimension 0 of 'y' (4)",
    ),
    "too few places": (
        ADDED.replace("at (places[k], l)", "at (places[k])"),
        "'y' has 2 dimensions, 1 indices are given",
    ),
    "an update of another type": (
        ADDED.replace(": u[k, l]", ": places[k]"),
        "the value is int64, the place float32",
    ),
    "more than there are": (CHOSEN.replace("int64[3, 4]", "int64[3, 7]"), "7 of 6 candidates cannot be chosen"),
    "a key that knows its rank": (CHOSEN.replace("x[i, k]", "x[i, j]"), "a key depends on the rank"),
    "positions of another type": (CHOSEN.replace("int64[", "int32["), "positions are int64, the buffer int32"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_verifier_says_what_an_order_may_not_do(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(CompileError) as error:
        verify_stages(parse_stages(text))
    assert message in str(error.value)
