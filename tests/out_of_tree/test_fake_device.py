"""A device that is none: copies, streams, memory and errors, of programs that compute on it in part or whole."""

from __future__ import annotations

import gc
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import onnx
import pytest

import graft
from graft.errors import ArtifactError, InputError, RunError
from graft.plugins.registry.manager import PluginManager
from graft.runtime import loading
from graft.runtime.loaders import NativeLoader
from graft.testkit.models.check import difference
from graft.testkit.models.model import draw_model
from tests.end_to_end.test_control_flow import CASES, HEAD
from tests.out_of_tree.fake_device.library import Device, built
from tests.plugins.distributions import install_project

PROJECT = Path(__file__).parent / "fake_device"
WEIGHTS = ", ".join(str(value / 10) for value in range(24))
CHAIN = f"""g (float[4,8] x, float[n,8] y) => (float[4,3] z, float[n,8] q) <float[8,3] w = {{{WEIGHTS}}}>
  {{ a = Relu(x) b = MatMul(a, w) z = Tanh(b) q = Exp(y) }}"""
BETWEEN = """g (float[4,8] x) => (float[4,8] z)
  { a = Exp(x) b = Sin(a) c = Cos(a) d = Add(b, c) e = Tanh(d) z = Mul(e, a) }"""


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginManager]:
    monkeypatch.setenv("GRAFT_FAKE_LIBRARY", str(built()))
    install_project(tmp_path, monkeypatch, PROJECT)
    yield PluginManager()
    for name in ("graft_fake.backend", "graft_fake.plugin", "graft_fake"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.fixture
def device() -> Iterator[Device]:
    one = Device()
    one.reset()
    yield one
    one.reset()
    gc.collect()


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def compiled(manager: PluginManager, text: str, *elsewhere: str) -> graft.Program:
    """Compile for the device, but for nodes of some operators, which are the processor's."""
    policy = graft.Policy(exclude_op=tuple(f"fake:{op}" for op in elsewhere))
    return graft.compile(
        parsed(text), ["fake", "llvm", "reference"], manager=manager, policy=policy, cache=False, strict=True
    )


def feeds(rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    return rng.normal(size=(4, 8)).astype(np.float32), rng.normal(size=(rows, 8)).astype(np.float32)


def on_processor(text: str) -> graft.Program:
    return graft.compile(parsed(text), ["llvm", "reference"], cache=False)


# ---- Results --------------------------------------------------------------------------------------------------------


def test_a_program_on_the_device_gives_what_the_processor_gives_for_every_shape(manager, device):
    program, other = compiled(manager, CHAIN), on_processor(CHAIN)
    for rows in (5, 2, 9, 5, 0):
        for got, wanted in zip(program(*feeds(rows)), other(*feeds(rows)), strict=True):
            assert isinstance(got, np.ndarray)
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("seed", range(8))
def test_random_models_mean_the_same_in_part_on_the_device(manager, device, seed):
    drawn = draw_model(seed)
    names = [row.node for row in graft.plan(drawn.proto, ["llvm", "reference"]).placements]
    elsewhere = tuple(f"fake:{name}" for name in names if seed % 2 and crc32(name.encode()) % 3 == 0)
    program = graft.compile(
        drawn.proto, ["fake", "llvm", "reference"], manager=manager, cache=False, strict=True,
        policy=graft.Policy(exclude_node=elsewhere),
    )  # fmt: skip
    assert difference(drawn, program.run(drawn.feeds)) == ""
    assert difference(drawn, program.run(drawn.feeds)) == ""


@pytest.mark.parametrize("name", [name for name in CASES if "loop" in name or "if" in name][:5])
def test_control_flow_runs_in_main_memory_with_bodies_on_the_device(manager, device, name):
    text, inputs = CASES[name]
    program, other = compiled(manager, text), on_processor(text)
    for given in inputs:
        got = program.run(given)
        for output, wanted in other.run(given).items():
            np.testing.assert_allclose(got[output], wanted, rtol=1e-6)


def test_threads_have_streams_of_their_own(manager, device):
    program, other = compiled(manager, BETWEEN, "Sin"), on_processor(BETWEEN)
    given = [feeds(seed)[0] * (seed + 1) for seed in range(16)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(program, given))
    for got, x in zip(results, given, strict=True):
        np.testing.assert_array_equal(got, other(x))


# ---- Copies ---------------------------------------------------------------------------------------------------------


def calls_of(program: graft.Program) -> list[str]:
    """The calls by kind; copies by where they go."""
    procedure = program.description.procedures[0]
    copies = {0: "to cpu", 1: "to fake"}
    return [
        copies[procedure.tensors[call.outputs[0]].device] if call.kind == "copy" else call.kind
        for call in procedure.calls
    ]


def test_a_value_is_copied_once_and_right_behind_what_writes_it(manager, device):
    program = compiled(manager, BETWEEN, "Sin", "Cos")
    assert calls_of(program).count("to cpu") == 1  # of what both of the processor's nodes read
    assert calls_of(program)[:2] == ["call", "to cpu"]
    assert calls_of(program).count("to fake") in (1, 2)


def test_inputs_and_outputs_of_a_whole_program_are_on_the_device_and_need_no_calls(manager, device):
    program = compiled(manager, CHAIN)
    assert set(calls_of(program)) == {"call"}
    procedure = program.description.procedures[0]
    assert {procedure.tensors[one].device for one in (*procedure.inputs, *procedure.outputs)} == {1}
    before = device.count("to_device"), device.count("to_host")
    program(*feeds())
    assert (device.count("to_device") - before[0], device.count("to_host") - before[1]) == (2, 2)


def test_weights_are_uploaded_once(manager, device):
    program = compiled(manager, CHAIN)
    before = device.count("to_device")
    for _ in range(3):
        program(*feeds())
    assert device.count("to_device") - before == 3 * 2
    constants = [one for one in program.description.procedures[0].tensors if one.storage == "constant"]
    assert [one.device for one in constants] == [1]


def test_a_program_without_devices_has_the_artifact_that_it_had(tmp_path):
    program = on_processor(CHAIN)
    program.save(tmp_path / "model.graft")
    assert program.devices == ()
    text = (tmp_path / "model.graft").read_bytes()
    assert b'"format":2' in text and b'"device' not in text


def test_what_is_on_the_device_is_given_back_with_the_program(manager, device):
    program = compiled(manager, BETWEEN, "Sin")
    program(feeds()[0])
    assert device.count("live") > 0
    del program
    gc.collect()
    assert [device.count(what) for what in ("live", "programs", "streams", "events")] == [0, 0, 0, 0]


# ---- Artifacts ------------------------------------------------------------------------------------------------------


def test_an_artifact_is_loaded_and_runs(manager, device, tmp_path):
    program = compiled(manager, CHAIN)
    path = tmp_path / "model.graft"
    program.save(path)
    assert b'"format":3' in path.read_bytes()
    for got, one in zip(loading.load(path, strict=True)(*feeds(3)), program(*feeds(3)), strict=True):
        np.testing.assert_array_equal(got, one)


@pytest.mark.parametrize("memory", ["binding", "maximum"])
def test_variants_and_memory_for_the_largest_shapes_are_on_the_device_too(manager, device, memory):
    program = graft.compile(
        parsed(CHAIN), ["fake", "llvm"], manager=manager, cache=False, strict=True, memory=memory,
        dims={"n": (1, 16)}, specialize={"n": [4]}, policy=graft.Policy(exclude_op=("fake:MatMul",)),
    )  # fmt: skip
    other = on_processor(CHAIN)
    for rows in (4, 7, 4, 16):
        for got, wanted in zip(program(*feeds(rows)), other(*feeds(rows)), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_profile_names_copies_by_where_they_go(manager, device):
    program = compiled(manager, BETWEEN, "Sin", "Cos")
    names = [name for _, name, _ in program.profile(feeds()[0])]
    assert {"copy to cpu", "copy to fake"} <= set(names)


@pytest.mark.slow
def test_an_artifact_runs_in_c_without_a_leak(manager, device, tmp_path):
    program = compiled(manager, CHAIN)
    path = tmp_path / "model.graft"
    program.save(path)
    x, y = feeds(3)
    wanted = program(x, y)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    (tmp_path / "y.bin").write_bytes(y.tobytes())
    done = subprocess.run([host(tmp_path), path, built(), tmp_path / "x.bin", tmp_path / "y.bin", "3"],
                          capture_output=True, check=True)  # fmt: skip
    np.testing.assert_array_equal(
        np.frombuffer(done.stdout, np.float32), np.concatenate([wanted[0].ravel(), wanted[1].ravel()])
    )


def host(folder: Path) -> Path:
    """Build a program in C that runs an artifact of two inputs, one output of which stays on the device at first."""
    native = Path(graft.runtime.include_dir()).parent
    sources = [PROJECT / "host.c", *(native / "src").glob("*/*.c")]
    program = folder / "host"
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [
        "cc",
        "-std=c11",
        "-O1",
        "-g",
        "-D_GNU_SOURCE",
        *checks,
        f"-I{native}/include",
        f"-I{native}/src",
        *map(str, sources),
    ]
    subprocess.run([*command, "-o", str(program), "-pthread", "-ldl", "-lm"], check=True)
    return program


def test_a_device_that_is_not_there_is_named(manager, device, monkeypatch, tmp_path):
    program = compiled(manager, BETWEEN)
    program.save(tmp_path / "model.graft")
    monkeypatch.setenv("GRAFT_FAKE_MISSING", "no card in any slot")
    with pytest.raises(ArtifactError, match=r"^device 'fake' cannot be used: no card in any slot$"):
        loading.load(tmp_path / "model.graft", strict=True)


def with_tensor(program, name, **fields):
    """The program's description with one tensor of the entry changed."""
    entry, *others = program.description.procedures
    tensors = tuple(replace(one, **fields) if one.name == name else one for one in entry.tensors)
    return replace(program.description, procedures=(replace(entry, tensors=tensors), *others))


HOSTILE = {
    "another number": ("a", {"device": 7}, "'device' is 7, not between 1 and 1"),
    "an input elsewhere": (
        "x", {"device": 0},
        "call 0: tensor 'x' is in the memory of 'main memory', and the call computes in that of 'fake'",
    ),
    "an output elsewhere": (
        "z", {"device": 0},
        "call 1: tensor 'a' is in the memory of 'fake', and the call computes in that of 'main memory'",
    ),
    "outside of the arena": ("a", {"offset": 1 << 20}, "'offset' 1048576 leave the arena of"),
    "memory of an unknown shape": (
        "a", {"storage": "dynamic", "shape": None, "offset": 0},
        "tensor 'a' is on a device, and its shape or its values are not known there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_is_refused(manager, device, name):
    tensor, fields, fault = HOSTILE[name]
    text = "g (float[4,8] x) => (float[4,3] z) <float[8,3] w = {" + WEIGHTS + "}> { a = Relu(x) z = MatMul(a, w) }"
    program = compiled(manager, text)
    with pytest.raises(ArtifactError, match=re.escape(fault)):
        graft.Program.from_description(with_tensor(program, tensor, **fields))


def test_two_devices_of_one_name_are_refused(manager, device):
    description = compiled(manager, CHAIN).description
    with pytest.raises(ArtifactError, match=r"device 2: 'name' \"fake\" is that of device 1 too$"):
        graft.Program.from_description(replace(description, devices=2 * description.devices))


def test_a_device_without_a_plugin_is_an_error_that_says_who_has_it(manager, device):
    description = compiled(manager, CHAIN).description
    loader = NativeLoader("fake", built())
    with pytest.raises(
        ArtifactError,
        match=r"^no device 'fake', which the program computes on; plugin 'fake' provides it; "
        r"install it with: pip install graft-fake$",
    ):
        graft.Program.from_description(description, loaders=[loader])


# ---- Tensors on the device ------------------------------------------------------------------------------------------


def test_a_tensor_on_the_device_gives_outputs_there_and_is_not_copied(manager, device):
    program, (x, y) = compiled(manager, CHAIN), feeds()
    z, q = program(x, y, outputs_on="fake")
    assert (repr(z), z.device, z.shape) == ("<DeviceTensor float32[4,3] on 'fake'>", "fake", (4, 3))
    assert z.__dlpack_device__() == (12, 0)
    before = device.count("to_device"), device.count("to_host")
    again = program(x, q)
    assert [type(one).__name__ for one in again] == ["DeviceTensor", "DeviceTensor"]
    assert (device.count("to_device") - before[0], device.count("to_host") - before[1]) == (1, 0)
    np.testing.assert_array_equal(again[1].numpy(), np.asarray(program(x, q.numpy())[1]))


def test_outputs_on_decides_where_outputs_are(manager, device):
    program, (x, y) = compiled(manager, CHAIN), feeds()
    named = program.run({"x": x, "y": y}, outputs_on="fake")
    assert {type(one).__name__ for one in named.values()} == {"DeviceTensor"}
    assert all(isinstance(one, np.ndarray) for one in program(x, named["q"], outputs_on="cpu"))
    with pytest.raises(InputError, match=r"^outputs_on is 'gpu'; the program computes on 'cpu' or 'fake'$"):
        program(x, y, outputs_on="gpu")


def test_what_the_processor_reads_and_gives_may_be_on_the_device_too(manager, device):
    text = "g (float[4,8] x, float[4,8] y) => (float[4,8] z, float[4,8] s) { z = Exp(x) s = Sin(y) }"
    program, x = compiled(manager, text, "Sin"), feeds()[0]
    first = program(x, x, outputs_on="fake")
    second = program(first[0], first[1])
    np.testing.assert_array_equal(second[1].numpy(), on_processor(text)(x, first[1].numpy())[1])


def test_a_tensor_outlives_the_names_of_its_program(manager, device):
    program, (x, y) = compiled(manager, CHAIN), feeds()
    wanted = program(x, y)[0]
    z = program(x, y, outputs_on="fake")[0]
    del program
    gc.collect()
    np.testing.assert_array_equal(z.numpy(), wanted)


def test_a_tensor_of_another_device_is_refused(manager, device):
    z = compiled(manager, CHAIN)(*feeds(), outputs_on="fake")[1]
    program = graft.compile(parsed("g (float[n,8] y) => (float[n,8] q) { q = Exp(y) }"), ["llvm"], cache=False)
    with pytest.raises(InputError, match=r"^input 'y' is on device type 12, not in main memory; copy it there$"):
        program(z)


def test_a_bound_program_keeps_its_state(manager, device):
    text = "g (float[4,8] s, float[4,8] x) => (float[4,8] t) { t = Add(s, x) }"
    bound, x = compiled(manager, text).bind({"s": "t"}), feeds()[0]
    plain, total = on_processor(text), np.zeros_like(x)
    for _ in range(3):
        bound(x)
        total = plain(total, x)
        np.testing.assert_array_equal(bound.state["s"], total)


# ---- What goes wrong ------------------------------------------------------------------------------------------------


def test_running_out_of_memory_is_an_error_of_the_run_and_the_program_stays_usable(manager, device):
    program, (x, y) = compiled(manager, CHAIN), feeds(300)
    wanted = on_processor(CHAIN)(x, y)
    device.limit(4096)
    with pytest.raises(
        MemoryError, match=r"^device 'fake': \d+ bytes for an? (arena|input|output): out of device memory$"
    ):
        program(x, y)
    device.limit(-1)
    for got, one in zip(program(x, y), wanted, strict=True):
        np.testing.assert_array_equal(got, one)


@pytest.mark.parametrize("what", ["allocate", "copy", "launch"])
def test_after_any_failure_the_next_run_is_right_and_nothing_is_lost(manager, device, what):
    program, x = compiled(manager, BETWEEN, "Sin"), feeds()[0]
    wanted = on_processor(BETWEEN)(x)
    for place in range(12):
        device.fail(what, place)
        try:
            np.testing.assert_array_equal(program(x), wanted)
        except (RunError, MemoryError) as error:
            assert re.search("was refused|out of device memory", str(error))
        device.fail(what, -1)
        np.testing.assert_array_equal(program(x), wanted)
    del program
    gc.collect()
    assert device.count("live") == 0


def test_a_failed_launch_names_node_and_function(manager, device):
    program = compiled(manager, "g (float[4,8] x) => (float[4,8] z) { z = Exp(x) }")
    device.fail("launch")
    with pytest.raises(
        RunError,
        match=r"function 'fake_0_0_exp' of module 'fake_0' \(kind 'fake', plugin 'fake'\): the launch was refused$",
    ):
        program(feeds()[0])


def test_a_broken_device_says_so_at_every_call_until_it_is_mended(manager, device):
    program, x = compiled(manager, BETWEEN), feeds()[0]
    device.fail("wait")
    for _ in range(2):
        with pytest.raises(RunError, match=r"the device fell off the bus$"):
            program(x)
    device.reset()
    np.testing.assert_array_equal(program(x), on_processor(BETWEEN)(x))


def test_a_shape_that_is_known_only_on_the_device_is_refused_when_it_is_compiled(manager, device):
    text = "g (float[4,8] x) => (int64[2,m] z) { z = NonZero(x) }"
    program = compiled(manager, text)  # `llvm` and `fake` leave NonZero to the reference
    assert program.devices == ()
