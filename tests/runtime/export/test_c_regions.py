"""Regions that a driver of the firmware runs: a made-up vendor's, whose blob is a table that bytes are looked up in."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.errors import ArtifactError, CompileError, PluginError
from graft.plugins.c_driver import driven
from graft.runtime.artifact import read, save
from graft.runtime.c_source import Driver, driver_from_json
from graft.runtime.export.c_check import Recorded
from graft.runtime.export.c_project import export_c_project
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription
from tests.runtime.programs import tensor

TABLE = bytes(reversed(range(256)))
DATA = b"head" + TABLE
DRIVER = Driver("lookup", {"table": (4, 256)}, 32)
HOOKS = """
#include <stdint.h>
#include "net.h"
#include "net_regions.h"
static const unsigned char *known;
int32_t graft_lookup_init(const GraftRegion *region) {
  known = region->blobs[0].data;
  return region->blob_count == 1 && (uintptr_t)known % NET_R_ALIGNMENT == 0 ? 0 : 33;
}
int32_t graft_lookup_run(const GraftRegion *region, void *scratch, const void *const *inputs, void *const *outputs) {
  const unsigned char *const x = inputs[0];
  unsigned char *const y = outputs[0], *const room = scratch;
  if (known == 0 || (uintptr_t)room % 64 || region->scratch_bytes != NET_R_SCRATCH_BYTES) return 44;
  for (size_t i = 0; i < region->input_bytes[0]; ++i) room[i] = known[x[i]];
  for (size_t i = 0; i < region->output_bytes[0]; ++i) y[i] = room[i];
  return 0;
}
"""
STRICT = "-O1 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Werror"


@dataclass
class Value:
    name: str
    dtype: str = "uint8"
    static_shape: tuple[int, ...] | None = (6,)


@dataclass
class Region:
    name: str = "r"
    inputs: tuple[Value, ...] = (Value("x"),)
    outputs: tuple[Value, ...] = (Value("y"),)


def program(driver: Driver = DRIVER) -> ProgramDescription:
    region: Any = Region()
    module = Module("r", "lookup", ("r",), DATA, source=driven(region, driver, 6))
    tensors = (tensor("x", "uint8", (6,), "input", index=0), tensor("y", "uint8", (6,), "output", index=0))
    call = Call("call", (0,), (1,), module=0, function="r", origin=("node",))
    return ProgramDescription((Procedure("main", tensors, (0,), (1,), (call,)),), (module,), {})


def exported(folder: Path, description: ProgramDescription) -> Path:
    x = np.array([0, 1, 2, 128, 254, 255], np.uint8)
    export_c_project(description, folder, Recorded([x], [255 - x]), name="net", stack=4096, compiler="gcc -Os")
    return folder


@pytest.fixture(autouse=True)
def tools() -> None:
    for tool in ("gcc", "make", "objdump"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def test_a_driver_is_handed_blobs_sizes_and_memory(tmp_path: Path) -> None:
    save(program(), tmp_path / "net.graft")
    folder = exported(tmp_path / "net", read(tmp_path / "net.graft"))
    (tmp_path / "hooks.c").write_text(HOOKS)
    header = (folder / "net.h").read_text()
    for row in ("NET_R_TABLE_BYTES 256", "NET_R_ALIGNMENT 32", "NET_R_SCRATCH_BYTES 6", "NET_WEIGHT_BYTES 256"):
        assert f"#define {row} " in f"{header} ".replace("\n", " ")
    subprocess.run(["gcc", "-c", *STRICT.split(), f"-I{folder}", "hooks.c"], check=True, cwd=tmp_path)
    done = subprocess.run(
        ["make", "-s", "-C", folder, "check", f"CFLAGS={STRICT}", f"LDFLAGS={tmp_path / 'hooks.o'}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "as recorded" in done.stdout) == (0, True), done.stdout + done.stderr
    dumped = subprocess.run(["objdump", "-h", folder / "build" / "net_regions.o"], capture_output=True, text=True)
    (row,) = [line.split() for line in dumped.stdout.splitlines() if ".rodata.graft_lookup_table" in line]
    assert (int(row[2], 16), row[-1]) == (256, "2**5")


def test_a_blob_may_be_called_what_a_region_has(tmp_path: Path) -> None:
    names = ("inputs", "outputs", "blobs", "region", "table")
    folder = exported(tmp_path / "net", program(replace(DRIVER, blobs=dict.fromkeys(names, (4, 256)))))
    assert all(f"#define NET_R_{one.upper()}_BYTES 256\n" in (folder / "net.h").read_text() for one in names)
    subprocess.run(["gcc", "-c", *STRICT.split(), f"-I{folder}", folder / "net_regions.c"], check=True, cwd=tmp_path)


def test_errors_of_a_driver_are_handed_on(tmp_path: Path) -> None:
    folder = exported(tmp_path / "net", program())
    for changed, status in (("known = 0", 44), ("return 33", 33)):
        hooks = HOOKS.replace(
            "known = region->blobs[0].data;", f"{changed}; return 0;" if status == 44 else changed + ";"
        )
        (tmp_path / "hooks.c").write_text(hooks)
        sources = [*folder.glob("*.c"), tmp_path / "hooks.c"]
        subprocess.run(["gcc", "-w", f"-I{folder}", *sources, "-o", tmp_path / "m", "-lm"], check=True)
        said = subprocess.run([tmp_path / "m"], capture_output=True, text=True, check=False)
        assert (said.returncode, said.stdout) == (1, f"net: error {status}\n")


def test_what_is_no_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="the blob 'table' of module 'r' ends behind the module's data"):
        exported(tmp_path / "net", program(replace(DRIVER, blobs={"table": (4, 257)})))
    assert not (tmp_path / "net").exists()
    varies: Any = Region(inputs=(Value("x", static_shape=None),))
    with pytest.raises(CompileError, match="a driver is told the sizes of tensors once, and the shape of 'x' varies"):
        driven(varies, DRIVER)
    for changed, said in (
        ({"name": "my npu"}, "'my npu' cannot be part of a name in C; give it letters, digits and underscores"),
        ({"blobs": {"für": (0, 1)}}, "'für' cannot be part of a name in C; give it letters, digits and underscores"),
        ({"blobs": {"t": (0, 1), "T": (1, 1)}}, "the blobs 't' and 'T' have one macro in C; give one another name"),
        ({"blobs": {"scratch": (0, 1)}}, "a blob cannot be called 'scratch': that is the memory of calls"),
        ({"blobs": {"t": (-1, 2)}}, "the blob 't' begins at -1 and has 2 bytes"),
        ({"alignment": 12}, "the alignment is 12, which is no power of two"),
    ):
        with pytest.raises(PluginError) as caught:
            program(replace(DRIVER, **changed))
        assert caught.value.message == f"the driver '{changed.get('name', 'lookup')}' of region 'r': {said}"
    with pytest.raises(PluginError, match="of region 'r': its calls have -1 bytes of scratch memory"):
        driven(Region(), DRIVER, -1)  # type: ignore[arg-type]
    whole = DRIVER.to_json()
    assert driver_from_json(whole) == DRIVER
    for broken, said in (({"align": 3}, "power of two"), ({"name": "a b"}, "in C"), ({"blobs": {"t": [-1, 2]}}, "-1")):
        with pytest.raises(ValueError, match=said):
            driver_from_json(whole | broken)
