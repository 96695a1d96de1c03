"""Seven programs by hand, as text: inputs are 64 blocks of 16 numbers, and what comes out is computed beside them.

Addresses count entries: an input block is 16 bytes of DRAM, an accumulator 64, a block of weights 256, a micro-op 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
X = np.random.default_rng(1).integers(-128, 128, (64, 16)).astype(np.int8)
W = np.random.default_rng(2).integers(-128, 128, (2, 16, 16)).astype(np.int8)
SCALES = np.random.default_rng(3).uniform(0.0001, 0.001, 16).astype(np.float32)
BIAS = np.random.default_rng(4).integers(-9999, 9999, 16).astype(np.int32)
DIVISOR = np.full(16, 0.05, np.float32)


@dataclass(frozen=True)
class UnitProgram:
    """A text whose tensor ``x`` is X, and what its output ``y`` holds."""

    name: str
    text: str
    expected: Callable[[], Array]


def _program(body: str, blocks: int, constants: str = "", micro_ops: str = "source=0") -> str:
    """A program of an input of 1,024 bytes, 32 micro-ops at most, constants at 4,096 and an output at 8,192."""
    lines = micro_ops.split(";")
    return "\n".join([
        ".configuration", '.tensor "x" input offset=0 size=1024',
        f'.tensor "m" micro_ops offset=1024 size={4 * len(lines)}', *(f"  .micro_op {line}" for line in lines),
        constants, f'.tensor "y" output offset=8192 size={blocks * 16}', ".program", body, "finish wait=store",
    ])  # fmt: skip


def _constant(*arrays: Array) -> str:
    data = b"".join(array.tobytes() for array in arrays)
    return f'.tensor "c" constant offset=4096 size={len(data)}\n.bytes {data.hex()}'


MICRO = "load micro_op dram=256 columns={}"
STORE = "store output dram=512 columns={} wait=alu signal=alu"
RELAY = "gemm outer=0 wait=load signal=alu"
PASS = RELAY + "\nalu min outer=0 wait=gemm signal=store\n"

COPY = _program(
    "load accumulator_8 dram=0 rows=2 columns=3 stride=8 signal=gemm\n" + PASS + STORE.format(6),
    6,
)  # fmt: skip

PADDED = _program(
    "load accumulator_8 rows=2 columns=2 stride=4 pad_top=1 pad_bottom=2 pad_left=1 pad_right=3 pad_value=-7 "
    "signal=gemm\n" + PASS + STORE.format(30),
    30,
)

GEMM = _program(
    f"""{MICRO.format(2)}
load weight dram=16 columns=2
load input columns=8 signal=gemm
gemm reset begin=0 end=1 outer=4 destination_outer=1 source_outer=2 wait=load
gemm begin=1 end=2 outer=4 destination_outer=1 source_outer=2 signal=alu
alu shift_right begin=0 end=1 outer=4 destination_outer=1 use_immediate immediate=9 wait=gemm
alu min begin=0 end=1 outer=4 destination_outer=1 use_immediate immediate=127
alu max begin=0 end=1 outer=4 destination_outer=1 use_immediate immediate=-128 signal=store
{STORE.format(4)}""",
    4,
    _constant(W),
    "source=0;source=1 weight=1",
)

LANES = _program(
    f"""{MICRO.format(3)}
load weight dram=16 columns=2
load input columns=10 signal=gemm
gemm reset lanes begin=0 end=1 outer=8 destination_outer=1 source_outer=1 wait=load
gemm lanes begin=1 end=3 outer=8 destination_outer=1 source_outer=1 signal=alu
alu shift_right outer=8 destination_outer=1 use_immediate immediate=8 wait=gemm signal=store
{STORE.format(8)}""",
    8,
    _constant(W),
    "source=0;source=1 weight=1;source=2 weight=17",
)

IMMEDIATE = _program(
    f"""{MICRO.format(1)}
load accumulator_8 columns=4 signal=gemm
{RELAY}
alu shift_right outer=4 destination_outer=1 use_immediate immediate=-3 wait=gemm
alu add outer=4 destination_outer=1 use_immediate immediate=-100
alu multiply outer=4 destination_outer=1 use_immediate immediate=3
alu shift_right outer=4 destination_outer=1 use_immediate immediate=5
alu max outer=4 destination_outer=1 use_immediate immediate=-50
alu min outer=4 destination_outer=1 use_immediate immediate=60 signal=store
{STORE.format(4)}""",
    4,
)

VECTORS = _program(
    f"""{MICRO.format(1)}
load accumulator_8 columns=8 signal=gemm
{RELAY}
alu add outer=2 destination_outer=1 source_outer=1 wait=gemm
alu copy outer=2 inner=1 destination_outer=1 source_outer=2 begin=0 end=1
alu max outer=2 destination_outer=1 source_outer=1
alu min outer=2 destination_outer=1 source_outer=1 signal=store
{STORE.format(8)}""",
    8,
    micro_ops="destination=0 source=4",
)

REQUANTIZED = _program(
    f"""{MICRO.format(1)}
load accumulator_8 columns=8
load accumulator sram=8 dram=64 columns=3 signal=gemm
{RELAY}
alu multiply outer=8 destination_outer=1 use_immediate immediate=499 wait=gemm
alu requantize outer=4 destination_outer=1 immediate=13
alu requantize outer=2 destination_outer=1 immediate=269 begin=0
alu shift_right outer=4 destination_outer=0 use_immediate immediate=0 signal=store
{STORE.format(8)}""",
    8,
    _constant(SCALES, DIVISOR, BIAS),
    "source=8",
)


def _multiplied() -> Array:
    pairs = X[:8].reshape(4, 2, 16).astype(np.int32)
    sums = pairs[:, 0] @ W[0].T.astype(np.int32) + pairs[:, 1] @ W[1].T.astype(np.int32)
    return np.clip(sums >> 9, -128, 127)


def _depthwise() -> Array:
    x, rows = X.astype(np.int32), (W[0, 0], W[0, 1], W[1, 1])
    return np.stack([sum(x[i + k] * rows[k] for k in range(3)) >> 8 for i in range(8)])


def _immediate() -> Array:
    return np.clip(((X[:4].astype(np.int32) << 3) - 100) * 3 >> 5, -50, 60)


def _vectors() -> Array:
    a, b = X[:4].astype(np.int32), X[4:8].astype(np.int32)
    a[:2] += b[:2]
    a[:2] = b[[0, 2]]
    a[:2] = np.minimum(np.maximum(a[:2], b[:2]), b[:2])
    return np.concatenate([a, b])


def _requantized() -> Array:
    x = X[:8].astype(np.int32) * 499

    def quantized(one: Array, least: int) -> Array:
        scaled = (one + BIAS).astype(np.float32) * SCALES / DIVISOR
        return np.clip(np.rint(scaled).astype(np.int64) + 13, least, 127).astype(np.int32)

    x[:4] = quantized(x[:4], -128)
    x[:2] = quantized(x[:2], 13)
    return x


UNIT_PROGRAMS = (
    UnitProgram("copy", COPY, lambda: X[[0, 1, 2, 8, 9, 10]]),
    UnitProgram("padded", PADDED, lambda: np.pad(
        X[[0, 1, 4, 5]].reshape(2, 2, 16), ((1, 2), (1, 3), (0, 0)), constant_values=-7)),
    UnitProgram("gemm", GEMM, _multiplied),
    UnitProgram("lanes", LANES, _depthwise),
    UnitProgram("immediate", IMMEDIATE, _immediate),
    UnitProgram("vectors", VECTORS, _vectors),
    UnitProgram("requantized", REQUANTIZED, _requantized),
)  # fmt: skip
