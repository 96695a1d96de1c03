import re

import pytest

from graft.core.schedule.primitives.schedule_text import parse_schedule
from graft.core.schedule.primitives.step import bounded, index
from graft.core.tensor_ir.ir import Block, For, Variable
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import matmul

REFUSED = [
    ("split x 4 -> a b", "there is no loop 'x'; there are i.first, j.first, i, j, k"),
    ("split i 0 -> a b", "the factor is less than 1"),
    ("split i 2 -> a k", "there already is a loop 'k'"),
    ("reorder i j.first", "'i' is not in one nest with the others"),
    ("reorder i", "it takes the names of two or more different loops"),
    ("fuse i k -> ik", "'i', 'k' do not stand directly in each other, in this order"),
    ("fuse j i -> ji", "'j', 'i' do not stand directly in each other, in this order"),
    ("jam k", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("parallel k", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("vectorize k", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("bind k thread.x", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("cache_read d at k in shared -> s", "no buffers are called 'd'; there are a, b, c"),
    ("cache_read c at k in shared -> s", "'c' is written inside of 'k'"),
    ("cache_read a at k in shared -> s by i", "'i' and its like must be bound loops around 'k', which all reach"),
    ("cache_write a at k in register -> s", "'a' is not written inside of 'k'"),
    ("compute_at c at i.first", "no nest before that of 'i.first' computes 'c', or more than loops stand between"),
    ("compute_at c at k", "iterations of 'k' share elements of 'c'"),
    ("pipeline k a", "the body of 'k' does not begin with what fills 'a'"),
    ("tensorize k mma", "there is no instruction 'mma'; there are dot4_u8s8, dot2_s16, dot2_bf16"),
    ("tensorize k dot4_u8s8", "'k' is not what 'dot4_u8s8' means: 'k' has another extent"),
]


@pytest.mark.parametrize(("step", "reason"), REFUSED, ids=lambda text: text[:24])
def test_a_step_that_cannot_be_taken_says_which_and_why(step, reason):
    _, function = matmul()
    (parsed,) = parse_schedule(step)
    message = f"cannot '{step}': {reason}"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        parsed.apply(function)


@pytest.mark.parametrize(("extents", "bounds"), [((2, 8), (0, 7)), ((8, 2), (0, 7)), ((2, None), None)])
def test_loops_over_one_variable_are_bounded_together(extents, bounds):
    variable, unknown = Variable("i"), Variable("n")
    loops = tuple(
        For(variable, unknown if extent is None else index(extent), "serial", Block(())) for extent in extents
    )
    assert bounded(Block(loops)).ranges[variable] == bounds if bounds else variable not in bounded(Block(loops)).ranges
