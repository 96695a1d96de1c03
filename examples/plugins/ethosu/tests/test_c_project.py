"""C projects on an emulated Cortex-M4, whose NPU is TOSA's reference model at the other end of a serial line."""

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from networks import NETWORKS, quantised

import graft
import graft_ethosu
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.device.boards import HERE, Mps2An386
from graft.plugins.c_source.backend import CBackend
from graft.runtime.export.c_check import Recorded
from graft.runtime.export.c_project import export_c_project
from graft_ethosu.blob import opened
from graft_ethosu.simulator import load

HOOKS = Path(graft_ethosu.__file__).parent / "native" / "graft_ethosu.c"
REPLAY = Path(__file__).parent / "replay"
FLAGS = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=gnu11", "-O2", "-Wall", "-Wextra",
         "-Wconversion", "-ffp-contract=off", "-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections"]  # fmt: skip


def exported(name, folder):
    model = quantised(NETWORKS[name]())
    request = Request(["ethosu", CBackend(compiles=False)], threads=1, target="thumbv7em")
    description = compile_model(model, request).description
    feeds = sample_inputs(graft.load(model))
    wanted = graft.compile(model, ["llvm"], threads=1)(**feeds)
    recorded = Recorded(list(feeds.values()), [wanted])
    export_c_project(description, folder, recorded, name="net", profile="bare-metal")
    return {one.name: one.data for one in description.modules if one.kind == "ethosu"}


def answers(modules, request, read):
    """Compute a region as the NPU would: from its scratch memory to its scratch memory."""
    mark, *sizes = struct.unpack("<5I", request)
    name, commands, scratch = (read(size) for size in sizes[:3])
    header, parts = opened(modules[name.decode()])
    assert (mark, commands) == (0x55504E, parts["commands"])
    memory = bytearray(scratch)
    places = np.frombuffer(parts["places"], "<u4").tolist()
    inputs = []
    for one, place in zip(header["inputs"], places, strict=False):
        count = int(np.prod(one["shape"], dtype=int))
        inputs.append(np.frombuffer(memory, one["dtype"], count, place).reshape(one["shape"]))
    (function,) = load(name.decode(), modules[name.decode()], {}).values()
    for array, place in zip(function(inputs), places[len(inputs) :], strict=False):
        memory[place : place + array.nbytes] = array.tobytes()
    return struct.pack("<I", 0) + bytes(memory)


@pytest.fixture
def board():
    if reason := Mps2An386().missing():
        pytest.skip(reason)
    return HERE / "mps2_an386"


@pytest.mark.parametrize("name", ["resnet8", "ds_cnn", "autoencoder"])
def test_a_network_gives_on_the_board_what_the_host_gives(name, board, tmp_path):
    modules = exported(name, tmp_path / "net")
    sources = [*(one for one in (tmp_path / "net").glob("*.c") if one.name != "main.c"), HOOKS, REPLAY / "replay.c",
               board / "board.c", board / "startup.c"]  # fmt: skip
    includes = [f"-I{one}" for one in (tmp_path / "net", REPLAY, board)]
    image, script = tmp_path / "net.elf", board / "mps2_an386.ld"
    built = subprocess.run(
        ["arm-none-eabi-gcc", *FLAGS, *includes, "-T", script, *sources, "-o", image, "-lm"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (built.returncode, built.stderr) == (0, "")
    run = ["qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "stdio",
           "-chardev", "null,id=text", "-semihosting-config", "enable=on,target=native,chardev=text",
           "-kernel", image]  # fmt: skip
    calls = 0
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while request := process.stdout.read(20):
            process.stdin.write(answers(modules, request, process.stdout.read))
            process.stdin.flush()
            calls += 1
    assert (process.returncode, calls) == (0, len(modules))


def test_blobs_have_sections_and_sizes(tmp_path):
    (data,) = exported("autoencoder", tmp_path / "net").values()
    header = (tmp_path / "net" / "net.h").read_text()
    _, parts = opened(data)
    for part in ("commands", "weights", "places"):
        assert f"_{part.upper()}_BYTES {len(parts[part])}\n" in header
    assert "int net_init(void);" in header
    if shutil.which("gcc"):
        subprocess.run(["make", "-s", "-C", tmp_path / "net", "all"], check=True, capture_output=True)
        dumped = ["objdump", "-h", tmp_path / "net" / "build" / "net_regions.o"]
        said = subprocess.run(dumped, capture_output=True, text=True, check=True).stdout.splitlines()
        rows = {
            line.split()[1]: (int(line.split()[2], 16), line.split()[-1]) for line in said if "graft_ethosu" in line
        }
        assert rows[".rodata.graft_ethosu_weights"] == (len(parts["weights"]), "2**4")
