import pytest

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled, anchor_stage
from graft.core.tensor_ir.ir import Block, Buffer, Function, Stage
from graft.core.tensor_ir.parser import parse_stages

STAGES = """
input x: float32[3, 4]
stage p: float32[3, 4] at (i, j) = x[i, j] * float32(2.0)
stage s: float32[3] at (i) = reduce add over j < 4 from float32(0.0): p[i, j]
stage y: float32[3] at (i) = s[i] + float32(1.0)
"""


def stages() -> tuple[Stage, ...]:
    return tuple(parse_stages(STAGES))


def test_the_anchor_is_the_last_reduction_of_stages_without_a_node() -> None:
    assert anchor_stage(stages(), None) == 1


def test_without_a_reduction_the_anchor_is_the_last_stage() -> None:
    assert anchor_stage([stages()[0], stages()[2]], None) == 1


def test_the_function_of_a_kernel_has_its_inputs_then_its_outputs() -> None:
    x, y, packed = (Buffer(name, "float32", (b.index(3),)) for name in ("x", "y", "packed"))
    kernel = Kernel("k", (x,), (y,), (), Trait.ELEMENTWISE, origin=("node",))
    assert kernel.function(Block(())) == Function("k", (x, y), 1, Block(()), ("node",))
    assert kernel.function(Block(()), {x: packed}).parameters == (packed, y)


def test_a_report_says_what_was_chosen_at_which_cost_and_what_was_refused() -> None:
    function = Function("f", (), 0, Block(()))
    made = Scheduled(function, strategy="rows", knobs={"lanes": 8}, refusals={"tiles": Reject("shape", "too small")})
    assert made.chosen == {"strategy": "rows", "lanes": 8}
    assert made.report == {"strategy": "rows", "lanes": 8, "refused": {"tiles": "shape: too small"}}
    costly = Scheduled(function, strategy="rows", cycles=12.6)
    assert costly.report == {"strategy": "rows", "cycles": 13}
    assert Scheduled(function).report == {} == Scheduled(function).chosen


@pytest.mark.parametrize("delayed", [False, True])
def test_loops_are_built_when_they_are_asked_for(delayed: bool) -> None:
    function, built = Function("f", (), 0, Block(())), []

    def build() -> Function:
        built.append(function)
        return function

    made = Scheduled(build if delayed else function)
    assert not built
    assert made.function is function
    assert len(built) == delayed
