"""The bytes of a module: what is packed is unpacked, extents are operations on those of tensors."""

from __future__ import annotations

import pytest

from graft.core.machine.target import Target
from graft.core.tensor_ir.parser import parse_function
from graft.errors import CompileError
from graft.plugins.cuda.backend import CudaBackend
from graft.plugins.cuda.image import Image, function_row, packed, unpacked
from graft.plugins.cuda.launches import launches_of
from graft.plugins.cuda.machines import SM_80, SM_90

VARYING = """
function twice(x: float32[n, 4]) -> (y: float32[n, 4]) {
  allocate t: float32[n, 4] in scratch
  parallel i < n {
    parallel j < 4 {
      t[i, j] = x[i, j]
    }
  }
  parallel i2 < n {
    parallel j2 < 4 {
      y[i2, j2] = t[i2, j2] + t[i2, j2]
    }
  }
}
"""


def test_what_is_packed_is_unpacked() -> None:
    images = [Image("sm_80", "ptx", b"text"), Image("sm_90", "cubin", b"\x7fELF" * 30)]
    data = packed(images, [])
    header, found = unpacked(data)
    assert found == images and header["format"] == 1 and len(data) % 64 == 0
    assert data[:8] == b"GRAFTCU1" and [row["offset"] for row in header["images"]] == [0, 64]


def test_bytes_that_are_no_module_are_refused() -> None:
    with pytest.raises(CompileError) as caught:
        unpacked(b"something else")
    assert str(caught.value) == "these bytes are no module of kind 'cuda'; they do not begin with GRAFTCU1"


def test_grids_and_workspaces_are_operations_on_the_extents_of_inputs() -> None:
    launches = launches_of(parse_function(VARYING))
    row = function_row(launches, {one.name: 0 for one in launches.launches})
    assert row.extents[:2] == [("mul", 4, "i0.0"), ("mul", "e0", 4)]
    assert row.workspaces == ["e1"]
    first, second = row.launches
    assert first.args == ({"input": 0}, {"workspace": 0}, {"extent": "i0.0", "bits": 32})
    assert second.args == ({"output": 0}, {"workspace": 0}, {"extent": "i0.0", "bits": 32})
    assert first.grid == second.grid and row.extents[-1][0] == "floordiv"


def test_a_module_has_code_for_each_device() -> None:
    backend, target = CudaBackend(), Target(SM_80, devices=(SM_90,))
    module = backend.emit([parse_function(VARYING)], target)
    _, images = unpacked(module.data)
    forms = [(one.arch, one.form) for one in images if one.form == "ptx"]
    assert forms == [("sm_80", "ptx"), ("sm_90", "ptx")] and module.functions == ("twice",)
    assert b".target sm_90" in images[-1].data
