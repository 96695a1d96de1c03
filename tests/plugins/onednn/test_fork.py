"""A program with two threads in a forked process: GNU OpenMP's workers are gone there."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.plugins.onednn.models import needs_library

pytestmark = needs_library

SCRIPT = """
import os, sys, threading
import numpy as np, onnx.parser, graft

head = '<ir_version: 10, opset_import: ["" : 21]> g (float[64,256] x) => (float[64,256] y)'
model = onnx.parser.parse_model(head + '{ t = Tanh(x) y = MatMul(t, w) }')
w = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
x = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32)
program = graft.compile(model, ["onednn"], threads=2, strict=True)
expected = program(x)
child = os.fork()
if child == 0:
    same = [np.array_equal(program(x), expected) for _ in range(3)]  # the same program, and one made in the child
    same.append(np.array_equal(graft.compile(model, ["onednn"], threads=2, strict=True)(x), expected))
    thread = threading.Thread(target=lambda: same.append(np.array_equal(program(x), expected)))
    thread.start()
    thread.join()
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0 if np.array_equal(program(x), expected) else 1)
    same.append(os.waitpid(grandchild, 0)[1] == 0)
    os._exit(0 if all(same) and len(same) == 6 else 1)
status = os.waitpid(child, 0)[1]
print("child", status, "parent", bool(np.array_equal(program(x), expected)))
"""


def test_a_program_with_two_threads_runs_after_fork_in_child_and_parent():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    assert done.stdout == "child 0 parent True\n", done.stderr
