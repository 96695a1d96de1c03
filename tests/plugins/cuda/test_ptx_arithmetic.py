"""PTX's arithmetic in the emulator: where operations differ from what a processor does."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Block, Buffer
from graft.errors import CompileError
from graft.plugins.cuda.emulated_image import emulated
from graft.plugins.cuda.emulator.ptx_text import functions
from graft.plugins.cuda.launches import Launch

KERNEL = """
.visible .entry kernel(.param .u64 kernel_param_0, .param .u64 kernel_param_1)
{{
  .reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd7, [kernel_param_0];
  ld.param.u64 %rd8, [kernel_param_1];
  ld.global.b64 %rd1, [%rd7];
  ld.global.b64 %rd2, [%rd7+8];
  cvt.u32.u64 %r1, %rd1;
  cvt.u32.u64 %r2, %rd2;
  cvt.u16.u64 %rs1, %rd1;
  cvt.u16.u64 %rs2, %rd2;
  mov.b32 %r3, 0;
  mov.b64 %rd3, 0;
  {text}
  st.global.b64 [%rd8], %rd3;
  ret;
}}
"""
WIDENED = "cvt.u64.u32 %rd3, %r3;"


def computed(text: str, first: int, second: int, folder: Path) -> int:
    """What a thread computes of two numbers of 64 bits."""
    buffers = Buffer("x", "int64", (b.index(2),)), Buffer("y", "int64", (b.index(1),))
    launch = Launch("kernel", (b.index(1),) * 3, (1, 1, 1), Block(()), buffers, ())
    path = folder / "kernel.so"
    path.write_bytes(emulated(KERNEL.format(text=text), [(launch, 0)], "kernel"))
    library = ctypes.CDLL(str(path))
    x, y = np.array([first, second], np.uint64), np.zeros(1, np.uint64)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (x, y)]
    given = (ctypes.c_void_p * 2)(*map(ctypes.addressof, pointers))
    one = (ctypes.c_int64 * 3)(1, 1, 1)
    library.kernel(one, one, given)
    library.graft_emulator_error.restype = ctypes.c_char_p
    assert library.graft_emulator_error() is None
    return int(y[0])


NAN, ONE, LOW, ALL = 0x7FC00000, 0x3F800000, 1 << 31, (1 << 32) - 1
OPERATIONS = {
    "shl.b32 %r3, %r1, %r2;": (1, 32, 0),
    "shr.u32 %r3, %r1, %r2;": (LOW, 40, 0),
    "shr.s32 %r3, %r1, %r2;": (LOW, 40, ALL),
    "div.s32 %r3, %r1, %r2;": (LOW, ALL, LOW),
    "div.u32 %r3, %r1, %r2;": (7, 0, ALL),
    "rem.s32 %r3, %r1, %r2;": (7, 0, 7),
    "mul.hi.u32 %r3, %r1, %r2;": (ALL, ALL, ALL - 1),
    "mul.hi.s32 %r3, %r1, %r2;": (ALL, 5, ALL),
    "bfe.u32 %r3, %r1, 4, 8;": (0x12345, 0, 0x34),
    "bfe.s32 %r3, %r1, 4, 4;": (0x80, 0, ALL - 7),
    "bfi.b32 %r3, %r1, %r2, 8, 4;": (0xFF, 0, 0xF00),
    "prmt.b32 %r3, %r1, %r2, 0x5410;": (0x11112222, 0x33334444, 0x44442222),
    "prmt.b32 %r3, %r1, %r2, 0x0008;": (0x80, 0, 0x808080FF),
    "lop3.b32 %r3, %r1, %r2, %r1, 0x3c;": (12, 10, 6),
    "shf.l.wrap.b32 %r3, %r1, %r2, 8;": (0xAB000000, 1, 0x1AB),
    "popc.b64 %r3, %rd1;": (0xFF00000001, 0, 9),
    "clz.b64 %r3, %rd1;": (1, 0, 63),
    "min.f32 %r3, %r1, %r2;": (NAN, ONE, ONE),
    "min.NaN.f32 %r3, %r1, %r2;": (NAN, ONE, NAN),
    "cvt.rzi.s32.f32 %r3, %r1;": (NAN, 0, 0),
    "cvt.rzi.u32.f32 %r3, %r1;": (0xBF800000, 0, 0),
    "cvt.rni.s32.f32 %r3, %r1;": (0x40200000, 0, 2),
    "cvt.rn.f16x2.f32 %r3, %r1, %r2;": (ONE, 0xC0000000, 0x3C00C000),
    "cvt.s32.s8 %r3, %r1;": (0xFF, 0, ALL),
    "cvt.rna.tf32.f32 %r3, %r1;": (ONE | 0x1000, 0, ONE | 0x2000),
    "fma.rn.f32 %r3, %r1, %r1, %r2;": (0x3F800800, 0xBF800000, 0x3A000400),
    "setp.lt.f32 %p1, %r1, %r2; selp.b32 %r3, 1, 2, %p1;": (NAN, ONE, 2),
    "setp.ltu.f32 %p1, %r1, %r2; selp.b32 %r3, 1, 2, %p1;": (NAN, ONE, 1),
    "setp.lt.and.s32 %p1|%p2, %r1, %r2, %p0; selp.b32 %r3, 1, 2, %p1;": (ALL, 1, 2),
    "setp.gt.u32 %p1, %r1, %r2; @%p1 mov.b32 %r3, 5; @!%p1 mov.b32 %r3, 6;": (ALL, 1, 5),
    "{ .reg .b32 %r3; mov.b32 %r3, 9; } add.s32 %r3, %r1, %r2;": (2, 3, 5),
    "setp.ne.b32 %p1, %r1, 0; @%p1 bra OVER; mov.b32 %r3, 7; OVER:": (0, 0, 7),
    "add.f16x2 %r3, %r1, %r2;": (0x3C003C00, 0x3C004000, 0x40004200),
}  # fmt: skip


def test_operations_give_what_the_isa_says(tmp_path: Path) -> None:
    text, expected = [], []
    for number, (operation, (first, second, result)) in enumerate(OPERATIONS.items()):
        if "%p0" in operation:
            operation = f"setp.ne.b32 %p0, %r2, %r2; {operation}"
        text.append((f"{operation} {WIDENED}", first, second))
        expected.append((number, result))
    found = [(number, computed(*one, folder=made(tmp_path, number))) for number, one in enumerate(text)]
    assert found == expected


def made(folder: Path, number: int) -> Path:
    path = folder / str(number)
    path.mkdir()
    return path


def test_an_instruction_that_the_emulator_does_not_know_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        computed("vote.sync.any.pred %p1, %p2, -1;", 0, 0, tmp_path)
    assert str(caught.value) == (
        "kernel 'kernel', line 14 (vote.sync.any.pred %p1, %p2, -1;): the emulator knows no 'vote.sync.any.pred'"
    )


def test_statements_may_go_over_several_lines_or_share_one() -> None:
    (kernel,) = functions(KERNEL.format(text="mov.b64\n    %rd3,\n    {%r1, %r2};  // both"))
    (move,) = [one for one in kernel.body if getattr(one, "line", 0) == 14]
    assert (move.name, move.operands) == ("mov.b64", ("%rd3", "{%r1, %r2}"))
