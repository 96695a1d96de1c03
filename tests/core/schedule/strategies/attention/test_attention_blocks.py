"""Attention over lengths that are known only when it runs, by the interpreter, against its stages."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.attention import fused_attention
from graft.core.schedule.strategies.strategy import Anchor
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages, static_value
from graft.core.tensor_ir.ir import Allocate, Buffer, If, Variable
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from graft.core.tuning.candidates import candidates
from graft.core.types import element_bits
from tests.core.schedule.strategies.nests.test_open_extents import MACHINES, arrays_of, kernel_of

TEXT = """
input q: float32[h, m, 16]
input k: float32[h, n, 16]
input v: float32[h, n, 24]
input c: float32[n]
stage s: float32[h, m, n] at (e, i, j) = reduce add over k0 < 16 from float32(0.0): q[e, i, k0] * k[e, j, k0] as contraction()
stage d: float32[h, m, n] at (e, i, j) = s[e, i, j] * float32(0.25) + c[j]
stage t: float32[h, m] at (e, i) = reduce max over j < n from float32(-inf): d[e, i, j]
stage u: float32[h, m] at (e, i) = reduce add over j < n from float32(0.0): exp(d[e, i, j] - t[e, i])
stage w: float32[h, m, n] at (e, i, j) = exp(d[e, i, j] - t[e, i]) / u[e, i]
stage y: float32[h, m, 24] at (e, i, f) = reduce add over j < n from float32(0.0): w[e, i, j] * v[e, j, f] as contraction()
"""  # noqa: E501 - a stage is a line
ALONG_KEYS = TEXT.replace("k: float32[h, n, 16]", "k: float32[h, 16, n]").replace("k[e, j, k0]", "k[e, k0, j]")
CAUSAL = TEXT.replace("+ c[j]", "+ select(j <= i, c[j], float32(-inf))")
SIZES = [{"h": 2, "m": 0, "n": 5}, {"h": 1, "m": 3, "n": 0}, {"h": 1, "m": 1, "n": 1}, {"h": 1, "m": 7, "n": 19}]


def scheduled(text: str, machine: str, parameters: Parameters | None = None) -> Scheduled:
    target = Target(ROWS[machine])
    found = schedule(kernel_of(text, Trait.ATTENTION), target, parameters)
    assert found.strategy == "fused_attention"
    verify(found.function, target.machine)
    return found


def check(
    text: str,
    machine: str,
    sizes: list[Mapping[str, int]],
    mask: float | None = None,
    parameters: Parameters | None = None,
) -> None:
    kernel, function = kernel_of(text, Trait.ATTENTION), scheduled(text, machine, parameters).function
    for one in sizes:
        arrays: dict[Buffer, np.ndarray] = arrays_of(kernel, one)
        if mask is not None:
            arrays[kernel.inputs[-1]][: one["n"] - 1] = mask
        with np.errstate(invalid="ignore"):
            wanted = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
            (found,) = run_function(function, [arrays[buffer] for buffer in kernel.inputs], [wanted.shape])
        np.testing.assert_allclose(found, wanted, rtol=5e-6, atol=5e-6, err_msg=f"{one}")


@pytest.mark.parametrize("machine", MACHINES)
def test_one_function_computes_attention_of_every_length(machine: str) -> None:
    check(TEXT, machine, SIZES)


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_read_behind_the_last_key_where_the_place_of_a_key_is_a_condition_too(machine: str) -> None:
    check(CAUSAL, machine, [{"h": 1, "m": 3, "n": 5}, {"h": 1, "m": 5, "n": 19}])


def test_keys_may_lie_one_after_the_other() -> None:
    check(ALONG_KEYS, "x86-64-v4", [{"h": 1, "m": 3, "n": 19}])


@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v4"])
def test_several_blocks_of_keys_give_the_same_result(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention, "MOST_KEYS", 1)
    keys = int(scheduled(TEXT, machine).knobs["keys"])
    check(TEXT, machine, [{"h": 1, "m": 2, "n": length} for length in (35, keys, keys + 1)])


@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v4"])
def test_a_block_in_which_all_keys_are_hidden_has_no_weight(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention, "MOST_KEYS", 1)
    check(TEXT, machine, [{"h": 1, "m": 1, "n": 35}], mask=-np.inf)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_blocks_need_beside_the_tensors_is_more_than_the_first_cache_and_at_most_half_the_second(
    machine: str,
) -> None:
    statements = walk_statements(scheduled(TEXT, machine).function.body)
    buffers = [one.buffer for one in statements if isinstance(one, Allocate) and one.buffer.memory == "scratch"]
    shapes = [[static_value(extent, {}) for extent in one.shape] for one in buffers]
    size = sum(math.prod(shape) * element_bits(one.dtype) // 8 for shape, one in zip(shapes, buffers, strict=True))
    first, second, *_ = ROWS[machine].caches
    assert first.bytes < size <= second.bytes // 2


@pytest.mark.parametrize("machine", MACHINES)
def test_queries_beyond_a_block_are_in_the_next(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention, "MOST_QUERIES", 1)
    rows = int(scheduled(TEXT, machine).knobs["rows"])
    check(TEXT, machine, [{"h": 1, "m": more + rows, "n": 2} for more in (0, 1, rows, rows + 1)])


def test_few_queries_whatever_the_heads_read_keys_where_they_are() -> None:
    body = scheduled(TEXT, "x86-64-v3").function.body
    assert isinstance(body, If)
    assert str(body.condition) == str(b.less_equal(Variable("m"), 4))


def test_heads_of_an_unknown_size_are_left_to_others() -> None:
    text = TEXT.replace("16]", "o]").replace("k0 < 16", "k0 < o")
    found = schedule(kernel_of(text, Trait.ATTENTION), Target(ROWS["x86-64-v3"]))
    assert found.strategy == "generic_nest"


@pytest.mark.parametrize("text", [TEXT.replace("24", "o"), TEXT[: TEXT.index("stage t")]])
def test_what_is_no_attention_of_known_heads_has_no_tiles_to_try(text: str) -> None:
    anchor = Anchor(kernel_of(text, Trait.ATTENTION))
    assert fused_attention.STRATEGY.candidates(anchor, Target(ROWS["x86-64-v3"]), 0) == []


def test_every_candidate_of_tuning_gives_the_same_attention() -> None:
    found = candidates(kernel_of(TEXT, Trait.ATTENTION), Target(ROWS["x86-64-v3"]), 0, None)
    assert len(found) > 2
    for one in found:
        check(TEXT, "x86-64-v3", SIZES[-1:], parameters=one)
