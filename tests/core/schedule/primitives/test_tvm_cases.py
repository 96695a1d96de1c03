"""TVM's own cases: each is refused with the reason that the table has, or computes what the plain loops do."""

from dataclasses import replace

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.tensorize import Tensorize
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Function, Variable
from graft.core.tensor_ir.parser import parse_function
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import nest
from tests.core.schedule.primitives.polybench import inputs, shapes
from tests.core.schedule.primitives.random_steps import check_same
from tests.core.schedule.primitives.tvm_cases import CASES, INSTRUCTIONS, KERNELS, Case

EXTENTS = ({"n": 5, "m": 7, "p": 3}, {"n": 0, "m": 1, "p": 2}, {"n": 1, "m": 0, "p": 1}, {"n": 3, "m": 16, "p": 4})


def plain(case: Case) -> Function:
    text = KERNELS[case.kernel]
    function: Function = nest(text)[1] if text.lstrip().startswith("input") else parse_function(f"function f{text}")
    return function


def touch(address) -> None:
    address[0] += 1


def mma(c, a, b) -> None:
    c[:16] += (a[:16].reshape(4, 4).astype(np.int32) @ b[:16].reshape(4, 4).T.astype(np.int32)).ravel()


def outer(c, a, b) -> None:
    c[:16] += np.outer(a[:4], b[:4]).ravel()


def dp4a(c, a, b) -> None:
    c[0] += a[:4].astype(np.int32) @ b[:4].astype(np.int32)


EXTERNS = {"touch": touch, "mma": mma, "mma_bytes": mma, "outer": outer, "dp4a": dp4a}
MEANINGS = {name: parse_function(f"function {name}{text}") for name, text in INSTRUCTIONS.items()}


def steps_of(case: Case) -> list[Step]:
    steps = parse_schedule(case.steps)
    return [replace(one, meanings=MEANINGS) if isinstance(one, Tensorize) else one for one in steps]


def names(cases) -> list[str]:
    return [f"{case.file}: {case.name}" for case in cases]


ACCEPTED = [case for case in CASES if not case.refused]
REFUSED = [case for case in CASES if case.refused]


@pytest.mark.parametrize("case", ACCEPTED, ids=names(ACCEPTED))
def test_an_accepted_schedule_computes_what_the_plain_loops_do(case: Case) -> None:
    function = plain(case)
    changed = apply_schedule(function, steps_of(case))
    has_symbols = any(isinstance(one, Variable) for buffer in function.parameters for one in buffer.shape)
    for extents in EXTENTS if has_symbols else EXTENTS[:1]:
        given, outputs = inputs(function, extents), shapes(function.output_buffers, extents)
        check_same(changed, given, run_function(function, given, outputs, EXTERNS), outputs, EXTERNS)


@pytest.mark.parametrize("case", REFUSED, ids=names(REFUSED))
def test_a_schedule_that_must_be_refused_is_and_says_which_step_and_why(case: Case) -> None:
    *steps, last = steps_of(case)
    before = apply_schedule(plain(case), steps)
    with pytest.raises(ScheduleError) as caught:
        last.apply(before)
    assert caught.value.message == f"cannot '{last}': {case.refused}"


def test_the_table_has_each_case_once() -> None:
    assert len(set(names(CASES))) == len(CASES)
    assert {case.kernel for case in CASES} == set(KERNELS)
