"""The emulator: threads, blocks and barriers as a device has them, and what it finds wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import graft
from graft.core.machine.target import Target
from graft.core.tensor_ir.parser import parse_function
from graft.errors import GraftError
from graft.plugins.cuda import emulator_module
from graft.plugins.cuda.backend import CudaEmulator
from graft.plugins.cuda.machines import SM_80

ROOT = Path(__file__).parents[3]
X = np.arange(64, dtype=np.float32)
REVERSED = """
function reverse(x: float32[64]) -> (y: float32[64]) {
  parallel b < 2 bind "block.x" {
    allocate tile: float32[32] in shared
    parallel t < 32 bind "thread.x" {
      tile[t] = x[b * 32 + t]
      barrier "block"
      y[b * 32 + t] = tile[31 - t]
    }
  }
}
"""

FILLED = REVERSED.replace("tile[t] = x", 'tile[t] = x[t]\n      barrier "block"\n      tile[t] = x')
"""The tile is written twice, so that what no barrier orders is a race, and not a read of what nobody has written."""


def run(text: str, *inputs: np.ndarray) -> np.ndarray:
    module = CudaEmulator().emit([parse_function(text)], Target(SM_80))
    (function,) = emulator_module.load("", module.data, {}).values()
    return function(list(inputs))[0]


def test_threads_of_a_block_exchange_what_is_in_shared_memory() -> None:
    np.testing.assert_array_equal(run(REVERSED, X), X.reshape(2, 32)[:, ::-1].reshape(-1))


def test_the_order_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        monkeypatch.setenv("GRAFT_EMULATOR_SEED", str(seed))
        np.testing.assert_array_equal(run(REVERSED, X), X.reshape(2, 32)[:, ::-1].reshape(-1))


FORTIFIED = """
import numpy as np
from tests.plugins.cuda.test_emulator import REVERSED, run
x = np.arange(64, dtype=np.float32)
assert (run(REVERSED, x) == x.reshape(2, 32)[:, ::-1].reshape(-1)).all()
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to fortify with")
def test_a_compiler_that_fortifies_makes_an_emulator_that_runs() -> None:
    """As some distributions' compilers do unasked: a fortified longjmp ends the process (it leaves a stack)."""
    environment = {**os.environ, "CC": "cc -D_FORTIFY_SOURCE=2"}
    done = subprocess.run([sys.executable, "-c", FORTIFIED], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def fault(text: str, *inputs: np.ndarray) -> str:
    with pytest.raises(GraftError) as caught:
        run(text, *inputs)
    return re.sub(r"line \d+ \((\S+)[^)]*\)", r"line (\1)", str(caught.value))


def test_shared_memory_that_nothing_has_written_is_found() -> None:
    write = "tile[t] = x[b * 32 + t]"
    assert fault(REVERSED.replace(write, f"if t < 16 {{\n        {write}\n      }}"), X) == (
        "kernel 'reverse': block (1, 0, 0), thread (7, 0, 0), line (ld.shared.b32): it reads byte 96 of shared memory, "
        "which nothing has written"
    )


def test_accesses_that_no_barrier_orders_are_found() -> None:
    found = FILLED.replace('      barrier "block"\n      y', "      y")
    assert fault(found, X) == (
        "kernel 'reverse': block (1, 0, 0), thread (15, 0, 0), line (st.shared.b32): "
        "it writes byte 60 of shared memory,"
        " which thread 16 reads at line (ld.shared.b32), and nothing orders the two"
    )


def test_a_write_behind_a_read_that_nothing_orders_is_found() -> None:
    text = REVERSED.replace("y[b * 32 + t] = tile[31 - t]", "y[b * 32 + t] = tile[31 - t]\n      tile[t] = x[t]")
    assert fault(text, X) == (
        "kernel 'reverse': block (1, 0, 0), thread (15, 0, 0), line (ld.shared.b32): "
        "it reads byte 64 of shared memory,"
        " which thread 16 writes at line (st.shared.b32), and nothing orders the two"
    )


def test_blocks_that_write_one_element_are_found() -> None:
    assert fault(REVERSED.replace("y[b * 32 + t]", "y[t]"), X) == (
        "kernel 'reverse': block (0, 0, 0), thread (1, 0, 0), line (st.global.b32): "
        "it writes byte 4 of 'y',"
        " which another block's thread 1 writes at line (st.global.b32), and nothing orders the two"
    )


def test_what_is_outside_of_a_buffer_is_found() -> None:
    assert fault(REVERSED.replace("x[b * 32 + t]", "x[b * 32 + t + 1000000]"), X) == (
        "kernel 'reverse': block (1, 0, 0), thread (21, 0, 0), line (ld.global.nc.b32): "
        "it reads 4 bytes outside of all buffers"
    )


def test_a_barrier_that_some_threads_miss_is_found() -> None:
    text = REVERSED.replace('      barrier "block"\n', '      if t < 31 {\n        barrier "block"\n      }\n')
    assert fault(text.replace("tile[31 - t]", "tile[t]"), X) == (
        "kernel 'reverse': block (1, 0, 0), thread (0, 0, 0), line (bar.sync): "
        "it waits for other threads of its block, which never come there"
    )


def test_a_barrier_of_a_warp_orders_its_own_threads() -> None:
    own = REVERSED.replace('barrier "block"', 'barrier "warp"')
    np.testing.assert_array_equal(run(own, X), X.reshape(2, 32)[:, ::-1].reshape(-1))


def test_a_barrier_of_a_warp_orders_no_other_warp() -> None:
    text = REVERSED.replace('barrier "block"', 'barrier "warp"').replace("32", "64").replace("31", "63")
    with pytest.raises(GraftError, match="nothing orders the two"):
        run(text.replace("b < 2", "b < 1"), X)


def test_copies_are_there_when_they_were_waited_for_and_not_before() -> None:
    text = REVERSED.replace(
        "tile[t] = x[b * 32 + t]", "call copy_async(tile[t], x[b * 32 + t], 4)\n      call commit_copies()"
    )
    waited = text.replace('barrier "block"', 'call wait_copies(0)\n      barrier "block"')
    np.testing.assert_array_equal(run(waited, X), X.reshape(2, 32)[:, ::-1].reshape(-1))
    assert fault(text, X) == (
        "kernel 'reverse': block (1, 0, 0), thread (20, 0, 0), line (ld.shared.b32): "
        "it reads byte 44 of shared memory, "
        "to which thread 11 copies at line (cp.async.ca.shared.global), and no wait has covered that"
    )


def test_a_result_has_extents_that_only_another_value_of_the_model_has() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> f (float[1, 4] x, float[n, 4] z) => (float[n, 4] y) {'
        " shape = Shape (z) y = Expand (x, shape) }"
    )
    program = graft.compile(model, ["cuda_emulator"], cache=False, strict=True)
    x = np.arange(4, dtype=np.float32)[None]
    for rows in (3, 1):
        found = program.run({"x": x, "z": np.zeros((rows, 4), np.float32)})["y"]
        np.testing.assert_array_equal(found, np.repeat(x, rows, axis=0))
