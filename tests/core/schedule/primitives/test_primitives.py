"""What primitives make of loops, what they refuse, and that any sequence of them keeps the result."""

from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule, print_schedule
from graft.core.tensor_ir.parser import parse_function
from tests.core.schedule.primitives.nests import SUBJECTS, check, matmul, names
from tests.core.schedule.primitives.random_steps import EXTERNS, random_schedule
from tests.core.schedule.primitives.test_schedule_text import TILED


def test_a_tiled_product_with_tails_computes_what_the_stages_mean():
    stages, function = matmul()
    tiled = apply_schedule(function, TILED)
    order = [name for name in names(tiled) if name[0] in "ijk" and "." not in name]
    assert order == ["i0", "j0", "k0", "i1", "j1", "k1"]
    check(stages, tiled)


# ---- Any sequence of primitives keeps the result -------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(SUBJECTS)), *(st.integers(1, 6) for _ in range(3)))
def test_any_sequence_of_primitives_keeps_the_result(draw, subject, m, n, k):
    stages, function = SUBJECTS[subject](m, n, k)
    function, taken, _ = random_schedule(draw, function, draw.randint(1, 9))
    assert parse_schedule(print_schedule(taken)) == tuple(taken)
    assert str(parse_function(str(function))) == str(function)
    check(stages, function, externs=EXTERNS)
