"""Barriers, tokens and races in the interpreter."""

import re

import numpy as np
import pytest

from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function

REVERSE = """
function reverse(x: float32[4, 8]) -> (y: float32[4, 8]) {
  parallel b < 4 bind "block.x" {
    allocate tile: float32[8] in shared
    parallel t < 8 bind "thread.x" {
      tile[t] = x[b, t]
      barrier "block"
      y[b, t] = tile[7 - t]
    }
  }
}
"""
X = np.arange(32, dtype=np.float32).reshape(4, 8)


def run(text, *inputs):
    (result,) = run_function(parse_function(text), inputs)
    return result


def fails(text, message, *inputs):
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        run(text, *inputs)


def test_threads_of_a_block_see_what_others_wrote_before_a_barrier():
    assert (run(REVERSE, X) == X[:, ::-1]).all()


def test_two_threads_that_touch_one_element_without_a_barrier_are_a_race():
    message = (
        "race on 'tile[3]': t = 3 writes it in 'tile[t] = x[b, t]', t = 4 reads it in 'y[b, t] = tile[7 - t]', "
        "and nothing orders the two"
    )
    fails(REVERSE.replace('barrier "block"', ""), message, X)


def test_two_threads_that_write_one_element_are_a_race_even_of_one_value():
    text = 'function f(x: float32[2]) -> (y: float32[1]) {\nparallel t < 2 bind "thread" {\ny[0 * t] = x[0]\n}\n}'
    message = (
        "race on 'y[0]': t = 0 writes it in 'y[0 * t] = x[0]', t = 1 writes it in 'y[0 * t] = x[0]', "
        "and nothing orders the two"
    )
    fails(text, message, np.zeros(2, np.float32))


def test_a_barrier_of_a_block_does_not_order_blocks():
    text = """
    function f(x: float32[2]) -> (y: float32[4]) {
      parallel b < 2 bind "block.x" {
        parallel t < 2 bind "thread.x" {
          y[b * 2 + t] = x[t]
          barrier "block"
          y[2 - b * 2 + t] = x[t]
        }
      }
    }
    """
    with pytest.raises(AssertionError, match=r"^race on 'y\[\d\]': b = 0 writes it in "):
        run(text, np.zeros(2, np.float32))


def test_a_barrier_of_groups_orders_the_units_of_each():
    text = """
    function swap(x: float32[8]) -> (y: float32[8]) {
      parallel b < 1 bind "block.x" {
        allocate near: float32[8] in shared
        parallel t < 8 bind "thread.x" {
          near[t] = x[t]
          barrier "warp" of 4
          y[t] = near[t / 4 * 4 + 3 - t % 4]
        }
      }
    }
    """
    x = np.arange(8, dtype=np.float32)
    (y,) = run_function(parse_function(text), [x])
    assert y.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
    assert str(parse_function(text)) == str(parse_function(str(parse_function(text))))
    with pytest.raises(AssertionError, match="race on 'near"):
        run_function(parse_function(text.replace("t / 4 * 4 + 3 - t % 4", "(t + 4) % 8")), [x])


def test_a_barrier_joins_the_threads_of_two_axes_and_leaves_each_its_own_memory():
    text = """
    function f(x: float32[2, 4]) -> (y: float32[2, 4]) {
      parallel b < 1 bind "block.x" {
        allocate tile: float32[2, 4] in shared
        parallel u < 2 bind "thread.y" {
          parallel t < 4 bind "thread.x" {
            allocate own: float32[1] in register
            own[0] = float32(0.0)
            serial k < 2 {
              tile[u, t] = x[u, t] + own[0]
              barrier "block"
              own[0] = own[0] + tile[1 - u, 3 - t]
              barrier "block"
            }
            y[u, t] = own[0]
          }
        }
      }
    }
    """
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    transposed = x[::-1, ::-1]
    assert (run(text, x) == transposed + (transposed + x)).all()


def test_a_barrier_that_some_units_do_not_reach_is_divergent():
    text = """
    function f(x: float32[4]) -> (y: float32[4]) {
      parallel b < 1 bind "block.x" {
        parallel t < 4 bind "thread.x" {
          if x[t] > float32(0.0) {
            barrier "block"
          }
          y[t] = x[t]
        }
      }
    }
    """
    assert (run(text, np.ones(4, np.float32)) == 1).all()
    message = (
        "divergent barrier in 'parallel t < 4 bind \"thread.x\" {': t = 3 is at 'barrier \"block\"', t = 2 at its end"
    )
    fails(text, message, np.array([1, 1, 0, 1], np.float32))


PIPE = """
function pipe(x: float32[4, 8]) -> (y: float32[4, 8]) {
  allocate tile: float32[2, 8] in sram
  serial i < 4 {
    issue "load" {
      if i >= 2 {
        pop "compute" -> "load"
      }
      serial k < 8 { tile[i % 2, k] = x[i, k] }
      push "load" -> "compute"
    }
    issue "compute" {
      pop "load" -> "compute"
      serial k < 8 { y[i, k] = tile[i % 2, k] + float32(1.0) }
      if i < 2 {
        push "compute" -> "load"
      }
    }
  }
}
"""


def test_tokens_order_what_queues_do():
    assert (run(PIPE, X) == X + 1).all()


def test_without_the_token_that_frees_a_slot_two_queues_are_in_a_race():
    text = PIPE.replace('pop "compute" -> "load"', "").replace('push "compute" -> "load"', "")
    message = (
        "race on 'tile[0, 0]': queue 'compute' reads it in 'y[i, k] = tile[i % 2, k] + float32(1.0)', queue 'load' "
        "writes it in 'tile[i % 2, k] = x[i, k]', and nothing orders the two"
    )
    fails(text, message, X)


def test_queues_that_wait_for_a_token_that_is_never_pushed_are_named():
    message = (
        "queues wait forever for tokens that nobody pushes: 'load' at 'pop \"compute\" -> \"load\"', "
        "'compute' at 'pop \"load\" -> \"compute\"'"
    )
    fails(PIPE.replace('push "load" -> "compute"', ""), message, X)


def test_a_token_that_nobody_takes_is_left():
    text = PIPE.replace("if i < 2", "if i < 3")
    fails(text, '1 tokens of \'push "compute" -> "load"\' are left: nothing pops them', X)


def test_the_function_waits_for_its_queues_before_it_reads_what_they_wrote():
    text = """
    function f(x: float32[2]) -> (y: float32[2]) {
      allocate tile: float32[2] in sram
      issue "load" {
        serial k < 2 { tile[k] = x[k] }
      }
      barrier "queue"
      serial k < 2 { y[k] = tile[k] }
    }
    """
    x = np.arange(2, dtype=np.float32)
    assert (run(text, x) == x).all()
    with pytest.raises(AssertionError, match=r"^race on 'tile\[0\]': queue 'load' writes it in .*, the function reads"):
        run(text.replace('barrier "queue"', ""), x)


def test_virtual_threads_interleave_and_keep_their_own_variables():
    text = """
    function f(x: float32[4]) -> (y: float32[4]) {
      parallel v < 2 bind "vthread" {
        serial k < 2 {
          let p: int64 = v * 2 + k
          issue "load" {
            y[p] = x[p]
          }
        }
      }
    }
    """
    x = np.arange(4, dtype=np.float32)
    assert (run(text, x) == x).all()


def test_how_many_units_there_are_inside_of_a_unit_is_its_own_affair():
    text = """
    function f(x: float32[4, 8]) -> (y: float32[4, 8]) {
      serial r < 4 { serial c < 8 { y[r, c] = float32(0.0) } }
      parallel b < 4 bind "block" {
        if b > 0 {
          parallel t < b * 2 bind "thread" {
            y[b, t] = x[b, t]
            barrier "block"
          }
        }
      }
    }
    """
    assert (run(text, X) == np.where(np.arange(8) < np.arange(4)[:, None] * 2, X, 0)).all()
