"""Modules in processes of their own: same results, and errors for whatever their code does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from graft.errors import ArgumentError, ArtifactError, CancelledError, DeadlineError, GraftError, RunError
from graft.runtime._native import CancelToken
from graft.runtime.isolation.connection import WorkerError
from graft.runtime.isolation.options import Isolation
from graft.runtime.isolation.program import IsolatedProgram, loaded
from graft.runtime.loaders import PythonLoader
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec
from graft.runtime.program import Program

sys.path.insert(0, str(Path(__file__).parent))

from vendor_module import CRASH, END, HANG, HOARD, PRINT, RAISE, load

sys.path.pop(0)

SHAPE = (4, 1000)
ONCE = Isolation(seconds=1, retries=0, fallback=False)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def tensor(
    name: str, storage: str, shape: tuple[int, ...] | None = SHAPE, index: int = 0, **more: object
) -> TensorSpec:
    return TensorSpec(name, "float32", shape, storage, index=index, **more)  # type: ignore[arg-type]


def description(data: bytes = b"") -> ProgramDescription:
    """``(x + y) + y`` as two calls of a vendor's function, with the sum between them in the arena."""
    tensors = (
        tensor("x", "input"),
        tensor("y", "input", index=1),
        tensor("sum", "arena", index=-1),
        tensor("z", "output"),
    )
    calls = (
        Call("call", (0, 1), (2,), module=0, function="add", origin=("first",)),
        Call("call", (2, 1), (3,), module=0, function="add", origin=("second",)),
    )
    procedure = Procedure("main", tensors, (0, 1), (3,), calls, arena_bytes=16000)
    module = Module("npu_0", "npu", ("add",), data, plugin="npu")
    return ProgramDescription((procedure,), (module,), {})


def program(how: Isolation = ONCE, data: bytes = b"", threads: int = 1) -> Program:
    return loaded(description(data), threads, [PythonLoader("npu", load)], {"npu": how})


def filled(value: float) -> np.ndarray:
    return np.full(SHAPE, value, np.float32)


@pytest.fixture(scope="module")
def shared() -> Program:
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        return program()
    finally:
        sys.path.pop(0)


def test_isolated_module_gives_what_it_gives_in_this_process(shared: Program) -> None:
    x, y = np.random.default_rng(0).random((2, *SHAPE), np.float32)
    expected = loaded(description(), 1, [PythonLoader("npu", load)])(x, y)
    assert isinstance(shared, IsolatedProgram)
    np.testing.assert_array_equal(shared(x, y), expected)


@pytest.mark.parametrize(
    ("what", "ends", "facts"),
    [
        (CRASH, "was killed by SIGSEGV", {"signal": "SIGSEGV"}),
        (END, "ended with status 3", {"status": 3}),
        (HANG, "did not answer within 1 s and was stopped", {"seconds": 1}),
    ],
    ids=["crash", "exit", "hang"],
)
def test_lost_process_is_an_error_and_the_next_call_goes_on(
    shared: Program, what: float, ends: str, facts: dict[str, object]
) -> None:
    bad = filled(1)
    bad[0, 0] = what
    with pytest.raises(RunError) as caught:
        shared(bad, filled(2))
    assert caught.value.message == (
        "node 'first': function 'add' of module 'npu_0' (kind 'npu, isolated for npu', plugin 'npu'): WorkerError: the "
        f"process of plugin 'npu' for module 'npu_0' {ends}"
    )
    cause = caught.value.__cause__
    assert isinstance(cause, WorkerError)
    assert cause.facts == {"plugin": "npu", "module": "npu_0", **facts}
    assert bad[0, 0] == what
    assert (shared(filled(1), filled(2)) == 5).all()


def test_exception_of_the_vendor_is_an_error_that_costs_no_process(shared: Program) -> None:
    lost = dict(shared.lost)  # type: ignore[attr-defined]
    bad = filled(RAISE)
    with pytest.raises(RunError, match="ValueError: an odd number"):
        shared(bad, filled(2))
    assert shared.lost == lost  # type: ignore[attr-defined]


def test_process_killed_between_calls_is_started_anew(shared: Program) -> None:
    shared(filled(1), filled(2))
    for child in Path("/proc/self/task").glob("*/children"):
        for supervisor in child.read_text().split():
            for workers in Path(f"/proc/{supervisor}/task").glob("*/children"):
                for worker in workers.read_text().split():
                    os.kill(int(worker), signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(RunError, match="was killed by SIGKILL"):
        shared(filled(1), filled(2))
    assert (shared(filled(1), filled(2)) == 5).all()


def test_vendor_does_not_print_to_the_output(shared: Program, capfd: pytest.CaptureFixture[str]) -> None:
    shared(filled(PRINT), filled(2))
    assert capfd.readouterr().out == ""


def test_calls_of_threads_run_at_the_same_time(shared: Program) -> None:
    failures = []

    def call(number: int) -> None:
        for _ in range(20):
            if not (shared(filled(number), filled(2)) == number + 4).all():
                failures.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_forked_child_has_processes_of_its_own(shared: Program) -> None:
    shared(filled(1), filled(2))
    child = os.fork()
    if child == 0:
        os._exit(0 if (shared(filled(1), filled(2)) == 5).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (shared(filled(1), filled(2)) == 5).all()


def test_call_is_tried_again_before_it_is_an_error() -> None:
    both = program(Isolation(seconds=5, retries=2, fallback=False))
    with pytest.warns(RuntimeWarning, match="the call is tried again"), pytest.raises(RunError):
        both(filled(CRASH), filled(2))
    assert both.lost == {"npu_0": 3}  # type: ignore[attr-defined]


def test_memory_of_the_process_is_bounded() -> None:
    small = program(Isolation(memory=1 << 28, retries=0, fallback=False))
    with pytest.raises(RunError, match="MemoryError"):
        small(filled(HOARD), filled(2))
    assert (small(filled(1), filled(2)) == 5).all()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"crash", GraftError, "was killed by SIGSEGV while it loaded it"),
        (b"hang", GraftError, "did not load it within 0.5 s and was stopped"),
        (b"raise", ArtifactError, r"no such network \(in a process of its own\)"),
    ],
    ids=["crash", "hang", "raise"],
)
def test_module_that_cannot_be_loaded_is_an_error(data: bytes, error: type[GraftError], message: str) -> None:
    with pytest.raises(error, match=message):
        program(Isolation(load_seconds=0.5), data)


def test_processes_end_with_the_program() -> None:
    def children() -> set[str]:
        return {one for path in Path("/proc/self/task").glob("*/children") for one in path.read_text().split()}

    before = children()
    one = program()
    assert children() - before
    del one
    assert not children() - before


def one_call(function: str, output: TensorSpec, inputs: tuple[TensorSpec, ...], **module: object) -> ProgramDescription:
    count = len(inputs)
    call = Call("call", tuple(range(count)), (count,), module=0, function=function)
    procedure = Procedure("main", (*inputs, output), tuple(range(count)), (count,), (call,))
    return ProgramDescription((procedure,), (Module("npu_0", "npu", (function,), b"", plugin="npu", **module),), {})  # type: ignore[arg-type]


def test_constants_are_handed_over() -> None:
    one = one_call("scale", tensor("z", "output"), (tensor("x", "input"),), constants={"w": filled(3)})
    assert (loaded(one, 1, [PythonLoader("npu", load)], {"npu": ONCE})(filled(2)) == 6).all()


@pytest.mark.parametrize("positive", [0, 1, 4000], ids=["none", "one", "all"])
def test_output_of_a_shape_that_depends_on_data(positive: int) -> None:
    one = one_call("positive", tensor("z", "output", None), (tensor("x", "input"),))
    x = filled(-1)
    x.flat[:positive] = np.arange(1, positive + 1)
    found = loaded(one, 1, [PythonLoader("npu", load)], {"npu": ONCE})(x)
    np.testing.assert_array_equal(found, np.arange(1, positive + 1, dtype=np.float32))


def test_loader_that_no_other_process_can_have_is_refused() -> None:
    with pytest.raises(ArtifactError, match="the loader for kind 'npu' cannot be sent to another process"):
        loaded(description(), 1, [PythonLoader("npu", lambda *_: {})], {"npu": ONCE})


@pytest.mark.parametrize("wrong", [{"seconds": -1}, {"memory": 0}, {"retries": "many"}, {"load_seconds": True}])
def test_isolation_with_a_wrong_number_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match=r"Isolation: .* is .*; give a number from"):
        Isolation(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_thousand_crashes_and_hangs_lose_nothing() -> None:
    many = program(Isolation(seconds=0.5, retries=0, fallback=False))
    generator = np.random.default_rng(1)
    for number in range(1000):
        x, y = generator.random((2, *SHAPE), np.float32)
        kept = x.copy()
        x[0, 0] = kept[0, 0] = HANG if number % 25 == 0 else (CRASH, END)[number % 2]
        with pytest.raises(RunError):
            many(x, y)
        np.testing.assert_array_equal(x, kept)
        x[0, 0] = 0
        np.testing.assert_array_equal(many(x, y), x + y + y)


def test_stopped_call_ends_its_process_and_is_not_tried_again() -> None:
    token, how = CancelToken(), Isolation(seconds=60, retries=3, fallback=False)
    run = program(how)
    assert (run(filled(1), filled(2), cancel=token) == 5).all()
    hangs = filled(1)
    hangs[0, 0] = HANG
    with pytest.raises(DeadlineError, match=r"^the deadline of the run passed in call 1 of 2, node 'first'$") as caught:
        run(hangs, filled(2), deadline=0.05)
    assert caught.value.__cause__ is None
    timer = threading.Timer(0.05, token.cancel)
    timer.start()
    with pytest.raises(CancelledError, match=r"^the run was cancelled in call 1 of 2, node 'first'$"):
        run(hangs, filled(2), cancel=token)
    timer.join()
    assert (run(filled(1), filled(2)) == 5).all()
    assert run.lost == {}  # type: ignore[attr-defined]
