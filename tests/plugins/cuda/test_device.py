"""Programs on a CUDA device that is none: results, architectures, and whatever the driver may say."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.errors import ArtifactError, GraftError, InputError, RunError
from tests.plugins.cuda.fake_driver import Driver, Emulated, build

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
WEIGHTS = ", ".join(str(value / 10) for value in range(24))
CHAIN = f"""g (float[4,8] x, float[n,8] y) => (float[4,3] z, float[n,8] q) <float[8,3] w = {{{WEIGHTS}}}>
  {{ a = Relu(x) b = MatMul(a, w) z = Softmax(b) q = Exp(y) }}"""
EXP = "g (float[n,8] y) => (float[n,8] q) { q = Exp(y) }"


@pytest.fixture(scope="module")
def library() -> Iterator[Path]:
    path = build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAFT_CUDA_DRIVER", str(path))  # read once in this process
        yield path


@pytest.fixture
def driver(library: Path) -> Iterator[Driver]:
    one = Driver(library)
    one.machine()
    one.mend()
    yield one
    gc.collect()
    one.machine()
    one.mend()


def compiled(text: str, kind: type[Emulated] = Emulated) -> graft.Program:
    return graft.compile(onnx.parser.parse_model(HEAD + text), [kind(), "llvm"], strict=True, cache=False)


def feeds(rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    return rng.normal(size=(4, 8)).astype(np.float32), rng.normal(size=(rows, 8)).astype(np.float32)


def test_kernels_of_every_shape_give_what_the_processor_gives(driver):
    program = compiled(CHAIN)
    other = graft.compile(onnx.parser.parse_model(HEAD + CHAIN), ["llvm"], cache=False)
    assert program.devices == ("cuda",)
    for rows in (5, 2, 9, 0):
        for got, wanted in zip(program(*feeds(rows)), other(*feeds(rows)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_what_a_program_has_on_the_device_is_given_back(driver):
    program = compiled(CHAIN)
    program(*feeds())
    assert driver.count("live") > 0
    del program
    gc.collect()
    assert (driver.count("live"), driver.count("modules"), driver.count("graphs")) == (0, 0, 0)


class WithoutExp(Emulated):
    def supports(self, node):
        return graft.Reject("no-pattern", "not here") if node.op_type == "Exp" else super().supports(node)


BETWEEN = "g (float[4,8] x) => (float[4,8] z) { a = Relu(x) b = Exp(a) c = Tanh(b) d = Exp(c) z = Relu(d) }"


@pytest.mark.parametrize("code", [0, 1], ids=["pinned", "not to be pinned"])
def test_main_memory_that_copies_go_through_is_pinned_while_the_program_lives(driver, code):
    driver.fail("pin", code)
    program, x = compiled(BETWEEN, WithoutExp), feeds()[0]
    for _ in range(3):
        np.testing.assert_allclose(program(x), np.exp(np.tanh(np.exp(np.maximum(x, 0)))), rtol=1e-5)
    assert driver.count("pinned") == (0 if code else 1)
    del program
    gc.collect()
    assert (driver.count("pinned"), driver.count("live")) == (0, 0)


def test_nothing_is_pinned_where_all_is_on_the_device(driver):
    program = compiled(EXP)
    program(feeds()[1])
    assert driver.count("pinned") == 0


def test_tensors_of_the_device_carry_cudas_code(driver):
    q = compiled(EXP)(feeds()[1], outputs_on="cuda")
    assert q.__dlpack_device__() == (2, 0)
    np.testing.assert_allclose(q.numpy(), np.exp(feeds()[1]), rtol=1e-6)


class OfNinety(Emulated):
    arch, form = "sm_90", "cubin"


def test_a_device_of_another_architecture_is_named_with_the_artifacts(driver):
    with pytest.raises(
        ArtifactError,
        match=r"it has code for sm_90 \(cubin\), and device 0, 'Card 0', is sm_80; compile the model with "
        r"--target sm_80$",
    ):
        compiled(EXP, OfNinety)
    driver.machine(arch=100)  # of another major version: cubins are for one
    with pytest.raises(ArtifactError, match=r"is sm_100; compile the model with --target sm_90$"):
        compiled(EXP, OfNinety)
    driver.machine(arch=70)
    with pytest.raises(ArtifactError, match=r"is sm_70; Graft compiles for sm_80 and later$"):
        compiled(EXP, OfNinety)


@pytest.mark.parametrize("arch", [80, 86, 90, 120])
def test_ptx_runs_on_later_devices(driver, arch):
    driver.machine(arch=arch)
    np.testing.assert_allclose(compiled(EXP)(feeds()[1]), np.exp(feeds()[1]), rtol=1e-6)


def test_a_kernel_that_the_driver_refuses_is_quoted(driver):
    driver.fail("load", 218)
    with pytest.raises(
        ArtifactError,
        match=r"its code for sm_80 \(ptx\) is refused by device 0, 'Card 0' \(sm_80\): cuModuleLoadDataEx: .* "
        r"\(218\): .*: ptxas fatal: what is this$",
    ):
        compiled(EXP)


class Greedy(Emulated):
    shared = 100_000


def test_a_kernel_that_exceeds_shared_memory_is_refused_with_the_numbers(driver):
    driver.machine(shared=99_000)
    with pytest.raises(
        ArtifactError,
        match=r"kernel '.*' \(node '.*'\) needs 100000 bytes of shared memory and \d+ threads for a block, and "
        r"device 0, 'Card 0', has at most 99000 bytes and 1024 threads$",
    ):
        compiled(EXP, Greedy)


def test_out_of_device_memory_is_a_memory_error_and_the_program_stays_usable(driver):
    program, (x, y) = compiled(CHAIN), feeds()
    driver.fail("allocate", 2)
    with pytest.raises(
        MemoryError,
        match=r"^device 'cuda': \d+ bytes for an? (arena|input|output): cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY "
        r"\(2\): out of memory$",
    ):
        program(x, y)
    np.testing.assert_allclose(program(x, y)[1], np.exp(y), rtol=1e-6)


def test_a_failed_launch_says_kernel_node_and_geometry(driver):
    program = compiled(EXP)
    driver.fail("launch", 1)
    with pytest.raises(
        RunError,
        match=r"kernel '.*exp.*' \(node '.*', grid \[\d+,\d+,\d+\], block \[\d+,\d+,\d+\], \d+ bytes of shared "
        r"memory\): cuLaunchKernel: CUDA_ERROR_OTHER \(1\): something else$",
    ):
        program(feeds()[1])
    np.testing.assert_allclose(program(feeds()[1]), np.exp(feeds()[1]), rtol=1e-6)


def test_a_sticky_error_names_the_last_launch_and_stays(driver):
    program = compiled(EXP)
    driver.fail("synchronize", 700)
    with pytest.raises(
        RunError,
        match=r"cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS \(700\): an illegal memory access was "
        r"encountered; the device is unusable for this process, start it anew; what was launched last: "
        r"kernel '.*exp.*' \(node ",
    ):
        program(feeds()[1])
    with pytest.raises(RunError, match="the device is unusable for this process"):
        program(feeds()[1])


def test_a_tensor_of_the_device_is_refused_where_the_program_knows_none(driver):
    q = compiled(EXP)(feeds()[1], outputs_on="cuda")
    other = graft.compile(onnx.parser.parse_model(HEAD + EXP), ["llvm"], cache=False)
    with pytest.raises(InputError, match=r"^input 'y' is on device type 2, not in main memory; copy it there$"):
        other(q)


class OfAnotherDevice:
    """A tensor of a device as its own, that says it is on the device of another number."""

    def __init__(self, tensor, number):
        self._tensor, self._number = tensor, number

    def __dlpack_device__(self):
        return (2, self._number)

    def __dlpack__(self, **requested):
        capsule = self._tensor.__dlpack__(**{name: value for name, value in requested.items() if name != "dl_device"})
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        device = (ctypes.c_int32 * 4).from_address(pointer(capsule, b"dltensor"))  # a pointer, then type and number
        device[3] = self._number
        return capsule


@pytest.mark.parametrize("number", [0, 1])
def test_a_tensor_of_another_number_of_device_is_refused(driver, number):
    driver.machine(devices=2)
    program = compiled(EXP)
    q = program(feeds()[1], outputs_on="cuda")
    if number == 0:
        np.testing.assert_allclose(program(OfAnotherDevice(q, 0)).numpy(), np.exp(q.numpy()), rtol=1e-6)
        return
    with pytest.raises(
        InputError,
        match=r"^input 'y' is on device type 2, number 1, and the program computes in main memory and on 'cuda' "
        r"\(type 2, number 0\); copy it there$",
    ):
        program(OfAnotherDevice(q, number))


def test_what_is_in_main_memory_is_copied_and_results_are_where_they_are_asked_for(driver):
    program, y = compiled(EXP), feeds()[1]
    assert isinstance(program(y), np.ndarray)
    q = program(y, outputs_on="cuda")
    assert (type(q).__name__, type(program(q, outputs_on="cpu"))) == ("DeviceTensor", np.ndarray)


# ---- Indices -----------------------------------------------------------------------------------------------------

GATHERS = """g (float[4,3] x, int64[n] i, int64[n] j) => (float[n,3] y, float[n,3] z)
  { [first] y = Gather<axis=0>(x, i) a = Exp(x) [second] z = Gather<axis=0>(a, j) }"""
SAID = (
    r"kernel 'cuda_0_indices_{}' \(node '{}'\): index {} is out of range: axis 0 has extent 4, so that -4 to 3 are "
    r"legal$"
)


def gathered(program, first, second):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    y, z = program(x, np.array(first), np.array(second))
    np.testing.assert_allclose(y, x[first], rtol=1e-6)
    np.testing.assert_allclose(z, np.exp(x)[second], rtol=1e-5)


def test_an_index_out_of_range_is_an_error_with_kernel_and_node_and_the_program_stays_usable(driver):
    program = compiled(GATHERS)
    for _ in range(4):  # launched one by one, then as a graph
        gathered(program, [0, 3, -4], [1, 2, 3])
        with pytest.raises(RunError, match=SAID.format(0, "first", 4)):
            gathered(program, [0, 4, 0], [1, 2, 3])
        with pytest.raises(RunError, match=SAID.format(1, "second", -5)):
            gathered(program, [0, 1, 2], [1, 2, -5])
        with pytest.raises(RunError, match=SAID.format(0, "first", 9)):  # of two the one that comes first
            gathered(program, [9, 1, 2], [1, 2, 7])
        gathered(program, [2, 1], [-1, 0])


def test_threads_hear_of_their_own_indices(driver):
    program = compiled(GATHERS)

    def run(number: int) -> str:
        try:
            gathered(program, [0, 4 if number % 3 == 0 else 3, 0], [1, 2, 3])
        except RunError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(run, range(24)))
    assert [bool(text) for text in said] == [number % 3 == 0 for number in range(24)]


def test_without_memory_that_both_sides_see_no_index_is_looked_at(driver):
    text = "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather<axis=0>(x, i) }"
    x, said = np.ones((4, 3), np.float32), []
    for place in range(6):
        program = compiled(text)
        driver.fail("allocate", 2, after=place)
        try:
            program(x, np.array([0, 1]))
        except (RunError, MemoryError) as error:
            said.append(str(error))
        driver.mend()
        np.testing.assert_array_equal(program(x, np.array([0, 1])), x[:2])
    assert sum("is memory that both sides see, of which there is none" in text for text in said) == 1
    del program
    gc.collect()
    assert driver.count("live") == 0


# ---- What is missing ------------------------------------------------------------------------------------------------

PROBE = """
import ctypes, sys
from graft.plugins.cuda.module import device_fault
if sys.argv[2:]:
    ctypes.CDLL(sys.argv[1]).fake_machine(*map(int, sys.argv[2:]))
print(device_fault())
"""


def probed(path: str | Path, *machine: int) -> str:
    """Ask for the device in a process of its own, for a driver is opened once."""
    environment = {**os.environ, "GRAFT_CUDA_DRIVER": str(path)}
    arguments = [sys.executable, "-c", PROBE, str(path), *map(str, machine)]
    return subprocess.run(arguments, env=environment, capture_output=True, check=True, text=True).stdout.strip()


def test_what_is_missing_is_said(library):
    none = probed("/nowhere/libcuda.so.1")
    assert none.startswith("there is no NVIDIA driver: /nowhere/libcuda.so.1: cannot open shared object file")
    assert probed(library, 1, 11020, 80, 1) == (
        "the NVIDIA driver is one of CUDA 11.2, and at least 11.4 is needed; update it"
    )
    assert probed(library, 0, 12000, 80, 1) == (
        "the NVIDIA driver does not start: cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"
    )
    assert probed(library, 1, 12000, 80, 1) == ""


def test_a_damaged_module_is_refused(driver):
    program = compiled(EXP)
    (module,) = program.description.modules
    for data, fault in (
        (b"GRAFTCU2" + module.data[8:], "its bytes are none of kind 'cuda'"),
        (module.data[:40], "its header is damaged"),
        (
            module.data.replace(b'"format":1', b'"format":2', 1),
            "it is of another version of Graft; compile the model again",
        ),
        (module.data.replace(b'"block":[', b'"block":[-', 1)[: len(module.data)], "its header is damaged"),
    ):
        damaged = replace(program.description, modules=(replace(module, data=data),))
        with pytest.raises(GraftError, match=fault):
            graft.Program.from_description(damaged)


# ---- Graphs -----------------------------------------------------------------------------------------------------


def test_launches_are_recorded_once_for_each_binding_of_shapes(driver):
    program = compiled(CHAIN)
    for rows in (5, 2, 5, 2, 5, 2):
        x, y = feeds(rows)
        np.testing.assert_allclose(program(x, y)[1], np.exp(y), rtol=1e-6)
    launches, graphs = driver.count("launches"), driver.count("graph_launches")
    for rows in (5, 2):
        program(*feeds(rows))
    assert (driver.count("launches"), driver.count("graph_launches")) == (launches, graphs + 2)


def test_where_nothing_can_be_recorded_calls_are_launched_one_by_one(driver):
    program, (x, y) = compiled(CHAIN), feeds()
    driver.fail("capture", 1)
    graphs = driver.count("graph_launches")
    for _ in range(4):
        np.testing.assert_allclose(program(x, y)[1], np.exp(y), rtol=1e-6)
    assert driver.count("graph_launches") == graphs


def test_a_graph_that_fails_names_its_first_node(driver):
    program, (x, y) = compiled(CHAIN), feeds()
    for _ in range(3):
        program(x, y)
    driver.fail("launch", 1)
    with pytest.raises(
        RunError, match=r"^node '.*: device 'cuda': cuGraphLaunch: CUDA_ERROR_OTHER \(1\): something else$"
    ):
        program(x, y)
    np.testing.assert_allclose(program(x, y)[1], np.exp(y), rtol=1e-6)
