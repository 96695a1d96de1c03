"""Programs on several threads, on a machine that is not theirs alone: nothing here asks how long something takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import sleep

import numpy as np
import pytest
from onnx import parser

import graft
from graft.runtime.program import Program

PROCESSORS = sorted(os.sched_getaffinity(0))
THREADS = 4
PRODUCTS = """<ir_version: 10, opset_import: ["": 20]>
    products (float[256, 256] x) => (float[256, 256] y) {
        a = MatMul(x, x)
        b = Relu(a)
        y = MatMul(b, x)
    }"""


@pytest.fixture(scope="module")
def program() -> Program:
    return graft.compile(parser.parse_model(PRODUCTS), ["llvm"], threads=THREADS)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32) / 16


@contextmanager
def busy(processors: list[int]) -> Iterator[None]:
    """Keep processors busy from outside."""
    code = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(one)]) for one in processors]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def move_about(program: Program, x: np.ndarray, calls: int) -> None:
    """Call from one processor after the other, tied to it or let go again, and check each result."""
    expected = program(x)
    try:
        for call in range(calls):
            os.sched_setaffinity(0, {PROCESSORS[call // 3 % len(PROCESSORS)]})
            if call % 2:
                os.sched_setaffinity(0, PROCESSORS)
            assert np.array_equal(program(x), expected)
    finally:
        os.sched_setaffinity(0, PROCESSORS)


def affinities() -> list[set[int]]:
    """Return where each thread of this process may run."""
    return [os.sched_getaffinity(int(task.name)) for task in Path("/proc/self/task").iterdir()]


def test_workers_keep_their_processors_while_the_caller_moves(program: Program, x: np.ndarray) -> None:
    before = program.pool_counts["jobs"]
    for _ in range(30):  # a worker may be moved just while it goes to sleep
        move_about(program, x, 10)
        for _ in range(1000):  # a worker that was moved takes its processors back when it is done
            if all(one == set(PROCESSORS) for one in affinities()):
                break
            sleep(0.001)
        assert all(one == set(PROCESSORS) for one in affinities())
    assert program.pool_counts["jobs"] > before


def test_results_stay_the_same_while_others_want_all_processors(program: Program, x: np.ndarray) -> None:
    with busy(PROCESSORS):
        move_about(program, x, 100)


def test_callers_together_get_what_one_gets(program: Program, x: np.ndarray) -> None:
    expected, found = program(x), []

    def call() -> None:
        found.extend(np.array_equal(program(x), expected) for _ in range(50))

    callers = [Thread(target=call) for _ in range(2 * THREADS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 100 * THREADS and all(found)


def test_workers_that_share_the_only_processor_with_their_caller_do_no_harm(x: np.ndarray) -> None:
    os.sched_setaffinity(0, PROCESSORS[:1])
    try:
        program = graft.compile(parser.parse_model(PRODUCTS), ["llvm"], threads=THREADS)
        expected = program(x)
        assert all(np.array_equal(program(x), expected) for _ in range(50))
        assert all(one <= set(PROCESSORS) for one in affinities())
    finally:
        os.sched_setaffinity(0, PROCESSORS)


def test_one_thread_counts_nothing(x: np.ndarray) -> None:
    program = graft.compile(parser.parse_model(PRODUCTS), ["llvm"], threads=1)
    program(x)
    assert program.pool_counts == {"jobs": 0, "helped": 0, "parted": 0, "lent": 0, "alone": 0}
