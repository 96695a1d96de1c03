"""The rows of NVIDIA's devices: levels, memories and instructions, by compute capability.

Numbers are those of the CUDA C++ Programming Guide (technical specifications per compute capability) and of the PTX
ISA. What a block may have of shared memory is what it may ask for beyond the static 48 KiB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graft.core.machine.instructions import ROUNDINGS
from graft.core.machine.machine import KIB, MIB, Costs, Instruction, Level, Machine, Memory

if TYPE_CHECKING:
    from graft.core.machine.target import Target

ARCH = "nvptx64"
WARP = 32
"""Threads that run in step."""
BLOCK = 1024
"""Threads of a block at the most."""
WARPGROUP = 4 * WARP
"""Threads that a `wgmma` belongs to."""

# A tensor instruction belongs to all 32 threads of a warp. c is 16 x 8, a 16 x k, b k x 8; thread t holds of c the rows
# t / 4 and t / 4 + 8 at the columns 2 * (t % 4) and the next, of a and b words of k along their rows and columns (PTX
# ISA, "Matrix Fragments for mma"). Rows of a and columns of b have 32 bytes, whatever the type.
_SUM = "c[i, j] + sum(k < {depth}: cast<{total}>(a[i, k]) * cast<{total}>(b[k, j]))"


def _mma(name: str, depth: int, total: str, llvm: str) -> Instruction:
    return Instruction(name, _SUM.format(depth=depth, total=total), {"llvm": llvm, "ptx": f"mma.sync ({llvm})"})


MMA = (
    _mma("mma_float16", 16, "float32", "nvvm.mma.m16n8k16.row.col.f32.f32"),
    _mma("mma_bfloat16", 16, "float32", "nvvm.mma.m16n8k16.row.col.bf16"),
    _mma("mma_tf32", 8, "float32", "nvvm.mma.m16n8k8.row.col.tf32"),
    _mma("mma_int8", 32, "int32", "nvvm.mma.m16n8k32.row.col.s8"),
    _mma("mma_uint8_int8", 32, "int32", "nvvm.mma.m16n8k32.row.col.u8.s8"),
    _mma("mma_int8_uint8", 32, "int32", "nvvm.mma.m16n8k32.row.col.s8.u8"),
)
"""Products of tiles by a warp, from sm_80 on."""

# Of a warpgroup, c is 64 x n: warp w of it has rows 16 w to 16 w + 15, in matrices of 16 x 8 as above. Both factors are
# in shared memory, in lines of 128 bytes whose 16-byte parts are swizzled (PTX ISA, "Asynchronous warpgroup level
# matrix shared memory layout"); of 16 bits, their own rows and columns may lie inside. n is a multiple of 8.


def _wgmma(name: str, depth: int, total: str, types: str) -> Instruction:
    ptx = f"wgmma.mma_async.sync.aligned.m64n{{columns}}k{depth}.{types}"
    return Instruction(f"wg{name}", _SUM.format(depth=depth, total=total), {"llvm": ptx, "ptx": ptx})


WGMMA = (
    _wgmma("mma_float16", 16, "float32", "f32.f16.f16"),
    _wgmma("mma_bfloat16", 16, "float32", "f32.bf16.bf16"),
    _wgmma("mma_tf32", 8, "float32", "f32.tf32.tf32"),
    _wgmma("mma_int8", 32, "int32", "s32.s8.s8"),
    _wgmma("mma_uint8_int8", 32, "int32", "s32.u8.s8"),
    _wgmma("mma_int8_uint8", 32, "int32", "s32.s8.u8"),
)
"""Products of tiles by a warpgroup: sm_90a alone, which no other device runs."""
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
BULK = Instruction("copy_bulk", "b[i]", {"llvm": _BULK, "ptx": _BULK})
"""Copies bytes, a multiple of 16, from the device's memory to a block's, as one thread says; an mbarrier tells when."""
_OWN = (
    Instruction("fma", "fma(a[0], b[0], c[0])", {"llvm": "fma", "c": "fmaf"}),
    *(Instruction(name, f"{name}(a[0])", text) for name, text in ROUNDINGS.items()),
    Instruction("round_bf16", 'intrinsic<bfloat16>("round_bf16", a[0])', {"llvm": "fptrunc"}),
    Instruction("round_f16", "cast<float16>(a[0])", {"llvm": "fptrunc"}),
)


def _device(name: str, isa: str, shared: int, l2: int, bandwidth: float, fused: int) -> Machine:
    """Return a row; ``bandwidth`` is of the device's memory, in bytes per cycle of all its blocks together."""
    return Machine(
        name, ARCH, name, frozenset({isa}), vectors=(32, 64, 128), registers=255,
        memories=(
            Memory("l1", 128 * KIB, line=128, bandwidth=128, seen_by="block", is_cache=True),
            Memory("l2", l2, line=128, ways=16, bandwidth=2 * bandwidth, is_cache=True),
            Memory("shared", shared, line=128, ways=32, bandwidth=128, seen_by="block"),
            Memory("scratch", seen_by="thread"),
            Memory("host", line=128, bandwidth=bandwidth),
        ),
        levels=(Level("block"), Level("warp", BLOCK // WARP), Level("thread", BLOCK)),
        instructions=(*_OWN, *MMA), costs=Costs(fused=fused, loads=32, latency=4, task=0),
    )  # fmt: skip


SM_80 = _device("sm_80", "ptx72", 163 * KIB, 40 * MIB, bandwidth=1103, fused=64)
"""A100: 108 multiprocessors at 1.41 GHz, 1555 GB/s."""
SM_90 = _device("sm_90", "ptx80", 227 * KIB, 50 * MIB, bandwidth=1883, fused=128)
"""H100: 132 multiprocessors at 1.78 GHz, 3350 GB/s."""
SM_90A = replace(
    SM_90, name="sm_90a", cpu="sm_90a", features=frozenset({"ptx84"}), instructions=(*SM_90.instructions, *WGMMA, BULK)
)
"""The same with what only devices of compute capability 9.0 have: named, never chosen."""
DEVICES = (SM_80, SM_90, SM_90A)


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the device of a row is, beside what its `Machine` says per cycle.

    ``tensor`` are the multiply-adds of 16-bit factors of a multiprocessor's cycle by `mma.sync`, ``best`` those by the
    device's fastest instruction, which NVIDIA's libraries use; ``double`` those of float64 outside of them.
    """

    multiprocessors: int
    hertz: float
    tensor: int
    best: int
    double: int

    @property
    def cycles_per_second(self) -> float:
        """The cycles of all multiprocessors."""
        return self.multiprocessors * self.hertz


SPEEDS = {
    "sm_80": Speed(108, 1.41e9, tensor=1024, best=1024, double=32),
    "sm_90": Speed(132, 1.78e9, tensor=1024, best=2048, double=64),
    "sm_90a": Speed(132, 1.78e9, tensor=1024, best=2048, double=64),
}
LAUNCH_SECONDS = 2.5e-6
"""From the end of a kernel to the beginning of the next one in a graph of them."""


def devices_of(target: Target) -> tuple[Machine, ...]:
    """Return the devices of a target, `SM_80` if it names none."""
    return tuple(dict.fromkeys(one for one in (target.machine, *target.devices) if one.arch == ARCH)) or (SM_80,)


def weakest_of(target: Target) -> Machine:
    """Return the device with the least shared memory, then with the fewest instructions, of the target's."""
    return min(devices_of(target), key=_abilities)


def _abilities(machine: Machine) -> tuple[int, int]:
    memory = machine.memory("shared")
    return 0 if memory is None else memory.bytes, len(machine.instructions)


def device(name: str) -> Machine:
    """Return the row of a name that an image has."""
    return next(one for one in DEVICES if one.name == name)
