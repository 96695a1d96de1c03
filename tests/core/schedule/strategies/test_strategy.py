import re
from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.strategy import SWITCHES, Anchor, Answer, Strategy, StrategyTable, of_kernel
from graft.core.tensor_ir.ir import Function, Store
from graft.errors import CompileError, GraftError
from tests.core.schedule.convolutions import WIDE, outputs_of
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul

PRODUCTS = frozenset({Trait.CONTRACTION})


def out_of_bounds(kernel: Kernel, target: Target) -> Scheduled:
    (output,) = kernel.outputs
    outside = tuple(b.index(extent) for extent in b.dims(output))
    body = Store(output, outside, b.constant(0, output.dtype))
    return Scheduled(Function(kernel.name, (*kernel.inputs, output), 1, body))


def refuses(anchor: Anchor, target: Target) -> Answer:
    return Reject("size", "only products of one row")


def test_a_strategy_that_builds_what_is_not_valid_is_named_and_the_next_one_is_tried() -> None:
    kernel, arrays = matmul((4, 8), (8, 6), constant=True)
    table = TABLE.with_rows([Strategy("npu.mistaken", PRODUCTS, of_kernel(out_of_bounds))])
    scheduled = schedule(kernel, WIDE, strategies=table)
    assert scheduled.strategy == "blocked_product"
    refusal = scheduled.refusals["npu.mistaken"]
    said = "strategy 'npu.mistaken' built what is not valid: function 'kernel': index 4 to 4 leaves dimension 0 of"
    assert refusal.code == "compile-failed" and refusal.text.startswith(said)
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


def test_rows_of_a_plugin_come_first_and_refusals_are_data() -> None:
    kernel, _ = matmul((4, 8), (8, 6), constant=True)
    own = replace(TABLE.rows[-1], name="npu.loops", anchors=PRODUCTS)
    never = replace(own, name="npu.rows", applies=refuses)
    scheduled = schedule(kernel, WIDE, strategies=TABLE.with_rows([never, own]))
    assert scheduled.strategy == "npu.loops"
    assert scheduled.refusals == {"npu.rows": Reject("size", "only products of one row")}
    assert scheduled.chosen == {"strategy": "npu.loops"}


@pytest.mark.parametrize(("switch", "words"), SWITCHES.items())
def test_a_strategy_is_left_out_by_its_switch(switch: str, words: str) -> None:
    kernel, _ = matmul((4, 8), (8, 6), constant=True)
    own = replace(TABLE.rows[-1], name="npu.loops", anchors=PRODUCTS, switch=switch)
    assert own.takes(Anchor(kernel), WIDE) is True
    refused = own.takes(Anchor(kernel), replace(WIDE, without=frozenset({switch})))
    assert str(refused) == f"user-excluded: {words} is switched off"


def test_two_strategies_of_one_name_are_refused() -> None:
    message = "strategy 'blocked_product' is in the table twice; give one of them another name"
    with pytest.raises(GraftError, match=re.escape(message)):
        TABLE.with_rows([row for row in TABLE.of(Trait.CONTRACTION) if row.name == "blocked_product"])


def test_a_kernel_that_no_strategy_takes_is_an_error_that_says_why() -> None:
    kernel, _ = matmul((4, 8), (8, 6), constant=True)
    table = StrategyTable((Strategy("rows", PRODUCTS, of_kernel(out_of_bounds), refuses),))
    message = "no strategy takes kernel 'kernel' (contraction): rows: size: only products of one row"
    with pytest.raises(CompileError, match=re.escape(message)):
        schedule(kernel, WIDE, strategies=table)
    with pytest.raises(CompileError, match="there is none for its anchor"):
        schedule(kernel, WIDE, strategies=StrategyTable(()))


def test_of_two_strategies_with_a_cost_the_one_of_fewer_cycles_is_taken_else_the_later_one() -> None:
    kernel, _ = matmul((4, 8), (8, 6), constant=True)
    plain = replace(TABLE.rows[-1], anchors=PRODUCTS)
    for first, last, taken in ((1.0, 2.0, "first"), (2.0, 1.0, "last"), (1.0, 1.0, "last")):
        costs = {"first": first, "last": last}
        rows = [replace(plain, name=name, cost=lambda anchor, target, cost=cost: cost) for name, cost in costs.items()]
        between = replace(plain, name="between", applies=refuses, cost=lambda anchor, target: 0.0)
        scheduled = schedule(kernel, WIDE, strategies=StrategyTable((rows[0], between, rows[1])))
        assert (scheduled.strategy, scheduled.cycles) == (taken, costs[taken])
