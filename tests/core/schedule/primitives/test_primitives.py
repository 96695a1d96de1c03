"""What primitives make of loops, what they refuse, and that any sequence of them keeps the result."""

from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule, print_schedule
from graft.core.tensor_ir.ir import Allocate
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import SUBJECTS, check, matmul, names
from tests.core.schedule.primitives.test_schedule_text import TILED


def test_a_tiled_product_with_tails_computes_what_the_stages_mean():
    stages, function = matmul()
    tiled = apply_schedule(function, TILED)
    order = [name for name in names(tiled) if name[0] in "ijk" and "." not in name]
    assert order == ["i0", "j0", "k0", "i1", "j1", "k1"]
    check(stages, tiled)


# ---- Any sequence of primitives keeps the result -------------------------------------------------------------------


def random_step(draw, function, number):
    """A step over names that the function has; most of those drawn can be taken."""
    known = names(function)
    one, other, third = (draw(st.sampled_from(known)) for _ in range(3))
    buffers = [buffer.name for buffer in function.parameters]
    buffers += [one.buffer.name for one in walk_statements(function.body) if isinstance(one, Allocate)]
    buffer = draw(st.sampled_from(buffers))
    fresh = [f"v{number}", f"w{number}"]
    return draw(
        st.sampled_from(
            [
                f"split {one} {draw(st.integers(1, 5))} -> {' '.join(fresh)}",
                f"split {one} {draw(st.integers(1, 5))} -> {' '.join(fresh)} tail u{number}",
                f"reorder {one} {other}",
                f"reorder {one} {other} {third}",
                f"fuse {one} {other} -> {fresh[0]}",
                f"vectorize {one}",
                f"unroll {one}",
                f"jam {one}",
                f"parallel {one}",
                f"bind {one} level{number}",
                f"cache_read {buffer} at {one} in scratch -> {fresh[0]}",
                f"cache_write {buffer} at {one} in scratch -> {fresh[0]}",
                f"compute_at {buffer} at {one}",
                f"pipeline {one} {buffer}",
            ]
        )
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(SUBJECTS)), *(st.integers(1, 6) for _ in range(3)))
def test_any_sequence_of_primitives_keeps_the_result(data, subject, m, n, k):
    stages, function = SUBJECTS[subject](m, n, k)
    taken = []
    for number in range(data.draw(st.integers(1, 9))):
        (step,) = parse_schedule(random_step(data.draw, function, number))
        try:
            function = step.apply(function)
        except ScheduleError as error:
            assert "the result is refused" not in str(error), error
        else:
            taken.append(step)
    assert parse_schedule(print_schedule(taken)) == tuple(taken)
    assert str(parse_function(str(function))) == str(function)
    check(stages, function)
