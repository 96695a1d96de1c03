"""From functions to launches: what is bound is kept, what is parallel gets threads, what is in order one block."""

from __future__ import annotations

import pytest

from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Barrier, Constant
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.printer import print_statement
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import CompileError
from graft.plugins.cuda.kernel_text import kernel_text
from graft.plugins.cuda.launches import Launch, launches_of
from graft.plugins.cuda.machines import SM_80, SM_90

TWO = """
function two(x: float32[1000]) -> (y: float32[1000]) {
  allocate t: float32[1000] in scratch
  parallel i < 1000 {
    t[i] = x[i] + x[i]
  }
  parallel j < 1000 {
    y[j] = t[999 - j]
  }
}
"""


def blocks(launch: Launch) -> int:
    count = launch.grid[0]
    assert isinstance(count, Constant)
    return int(count.value)


def test_parallel_loops_are_launches_with_a_thread_for_each_iteration() -> None:
    launches = launches_of(parse_function(TWO))
    assert [(one.name, blocks(one), one.block) for one in launches.launches] == [
        ("two", 4, (256, 1, 1)),
        ("two_1", 4, (256, 1, 1)),
    ]
    assert [one.name for one in launches.workspaces] == ["t"]


@pytest.mark.parametrize("place", ["i", "99 - i"])
def test_parallel_loops_in_a_serial_one_are_one_block_whose_threads_wait_where_they_meet(place: str) -> None:
    text = f"""
function steps(x: float32[8, 100]) -> (y: float32[100]) {{
  allocate t: float32[100] in scratch
  parallel z < 100 {{
    y[z] = float32(0.0)
  }}
  serial s < 8 {{
    parallel i < 100 {{
      t[i] = y[i] + x[s, i]
    }}
    parallel j < 100 {{
      y[j] = t[{place.replace("i", "j")}]
    }}
  }}
}}
"""
    first, second = launches_of(parse_function(text)).launches
    assert (blocks(first), first.block, blocks(second), second.block) == (1, (128, 1, 1), 1, (256, 1, 1))
    barriers = sum(isinstance(one, Barrier) for one in walk_statements(second.body))
    assert barriers == (0 if place == "i" else 2)


def test_a_kernel_that_exceeds_shared_memory_is_refused_with_the_numbers() -> None:
    text = """
function large(x: float32[64]) -> (y: float32[64]) {
  parallel b < 1 bind "block.x" {
    allocate tile: float32[50000] in shared
    parallel t < 64 bind "thread.x" {
      tile[t] = x[t]
      y[t] = tile[t]
    }
  }
}
"""
    function = parse_function(text)
    (launch,) = launches_of(function).launches
    with pytest.raises(CompileError) as caught:
        kernel_text(launch, function, Target(SM_80))
    assert str(caught.value) == (
        "kernel 'large' asks for 200000 bytes of shared memory ('tile' 200000); a block of 'sm_80' has 166912; give it "
        "smaller tiles or fewer stages"
    )
    assert kernel_text(launch, function, Target(SM_90)).shared == 200000


def test_places_that_are_read_stay_inside_of_buffers() -> None:
    text = """
function gather(x: float32[10], i: int64[4]) -> (y: float32[4]) {
  parallel n < 4 {
    y[n] = x[i[n]]
  }
}
"""
    (launch,) = launches_of(parse_function(text)).launches
    assert "x[min(max(i[n.thread], 0), 9)]" in print_statement(launch.body)
