"""The table of machines: a row reads like a data sheet.

Caches and costs of a family are those of a usual member; `graft.core.machine.host` reads the sizes of this machine's
own. Another target is another row, here or from a plugin (`graft.plugins.hooks.graft_machines`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from graft.core.machine.instructions import INSTRUCTIONS, instructions_of
from graft.core.machine.machine import KIB, MIB, Costs, Level, Machine, Memory
from graft.errors import MachineError

_X86_1 = frozenset({"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})
_X86_2 = _X86_1 | {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_X86_3 = _X86_2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_X86_4 = _X86_3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
# The levels of the x86-64 psABI (System V ABI, AMD64 supplement, 3.1.1).

OWN_MEMORY = Memory("scratch", seen_by="thread")
"""What a thread allocates for itself: it lies in the same memory as tensors, but nobody else looks there."""
TENSOR_MEMORY = Memory("host", bandwidth=9)


def caches(first: int, second: int, third: int = 0) -> tuple[Memory, ...]:
    """Return the memories of a processor with caches of so many bytes: two of each core, a third that all share."""
    shared = (Memory("l3", third, ways=16, bandwidth=32, is_cache=True),) if third else ()
    return (
        Memory("l1", first, ways=8, bandwidth=128, seen_by="thread", is_cache=True),
        Memory("l2", second, ways=8, bandwidth=64, seen_by="thread", is_cache=True),
        *shared,
        OWN_MEMORY,
        TENSOR_MEMORY,
    )


THREADS = (Level("thread"),)

NATIVE = "native"
"""What this machine is called (`graft.core.machine.host`)."""

X86_64 = Machine(
    "x86-64", "x86_64", "x86-64", _X86_1, vectors=(128,), registers=16, levels=THREADS,
    memories=caches(32 * KIB, 256 * KIB, 8 * MIB), instructions=instructions_of("x86_64", _X86_1),
)  # fmt: skip
X86_64_V2 = Machine(
    "x86-64-v2", "x86_64", "x86-64-v2", _X86_2, vectors=(128,), registers=16, levels=THREADS,
    memories=caches(32 * KIB, 256 * KIB, 8 * MIB), instructions=instructions_of("x86_64", _X86_2),
)  # fmt: skip
X86_64_V3 = Machine(
    "x86-64-v3", "x86_64", "x86-64-v3", _X86_3, vectors=(128, 256), registers=16, masked_loads=True, levels=THREADS,
    memories=caches(32 * KIB, 512 * KIB, 16 * MIB), instructions=instructions_of("x86_64", _X86_3),
)  # fmt: skip
X86_64_V4 = Machine(
    "x86-64-v4", "x86_64", "x86-64-v4", _X86_4, vectors=(128, 256, 512), registers=32, masks=True, levels=THREADS,
    memories=caches(32 * KIB, 1 * MIB, 32 * MIB), instructions=instructions_of("x86_64", _X86_4),
)  # fmt: skip
ARMV8_A = Machine(
    "armv8-a", "aarch64", "generic", frozenset({"neon"}), vectors=(64, 128), registers=32, levels=THREADS,
    memories=caches(64 * KIB, 512 * KIB, 4 * MIB), instructions=instructions_of("aarch64", {"neon"}),
)  # fmt: skip
WASM32 = Machine(
    "wasm32", "wasm32", "generic", registers=13, levels=(Level("thread", 1),), memories=caches(32 * KIB, 256 * KIB),
    instructions=instructions_of("wasm32", ()), costs=Costs(fused=1.5), unroll=1,
)  # fmt: skip
_WEB_MEMORIES = caches(16 * KIB, 1 * MIB)
"""Of usual phones and desktops, half of the first level: panels of narrow vectors then stay there beside the rows."""
WASM32_SIMD128 = Machine(
    # An x86-64 processor has 16 registers; engines keep one, and a product waits in another to be added.
    "wasm32+simd128", "wasm32", "generic", frozenset({"simd128"}), vectors=(128,), registers=13,
    levels=(Level("thread", 1),), memories=_WEB_MEMORIES,
    instructions=instructions_of("wasm32", {"simd128"}), costs=Costs(fused=1.5), unroll=1,
)  # fmt: skip
WASM32_RELAXED_SIMD = Machine(
    # A multiply-add is one instruction, fused or not as the engine likes, so no product waits in a register.
    "wasm32+relaxed-simd", "wasm32", "generic", frozenset({"simd128", "relaxed-simd"}), vectors=(128,), registers=14,
    levels=(Level("thread", 1),), memories=_WEB_MEMORIES,
    instructions=instructions_of("wasm32", {"simd128", "relaxed-simd"}), unroll=1,
)  # fmt: skip
WASM32_THREADS = replace(
    WASM32_SIMD128, name="wasm32+threads", features=frozenset({"simd128", "atomics"}), levels=THREADS
)
THUMBV7EM = Machine(
    "thumbv7em", "thumb", "cortex-m4", frozenset({"vfp4d16sp"}), registers=16, levels=(Level("thread", 1),),
    memories=(OWN_MEMORY, Memory("host", bandwidth=4)), instructions=(), float_unroll=1,
    costs=Costs(fused=1, loads=1, latency=3, code=0.04),
)  # fmt: skip
RISCV64 = Machine(
    "riscv64", "riscv64", "generic-rv64", frozenset({"m", "a", "f", "d", "c"}), registers=32, levels=THREADS,
    memories=caches(32 * KIB, 256 * KIB), instructions=instructions_of("riscv64", {"m", "a", "f", "d", "c"}),
    costs=Costs(fused=1, loads=1, latency=5),
)  # fmt: skip
RISCV64_V = Machine(
    # Registers have 128 bits at least (Zvl128b is part of V); masks of a group of them lie in v0 alone.
    "riscv64+v", "riscv64", "generic-rv64", RISCV64.features | {"v"}, vectors=(128,), registers=32, levels=THREADS,
    memories=caches(32 * KIB, 256 * KIB), instructions=instructions_of("riscv64", RISCV64.features | {"v"}),
    costs=Costs(fused=1, loads=1, latency=5),
)  # fmt: skip
GENERIC = Machine(
    "generic", "generic", "generic", registers=16, levels=THREADS, memories=caches(32 * KIB, 256 * KIB)
)  # fmt: skip

ROWS = {
    row.name: row
    for row in (
        X86_64, X86_64_V2, X86_64_V3, X86_64_V4, ARMV8_A, RISCV64, RISCV64_V, THUMBV7EM, WASM32, WASM32_SIMD128,
        WASM32_RELAXED_SIMD, WASM32_THREADS, GENERIC,
    )
}  # fmt: skip
ARCHITECTURES = {"aarch64": ARMV8_A, "arm64": ARMV8_A, "x86_64": X86_64, "amd64": X86_64}
"""The rows that the names of architectures stand for: the least that every processor of these has."""
COMPILED_FOR = frozenset({
    "sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "popcnt", "lzcnt", "movbe", "bmi", "bmi2", "tbm", "avx", "avx2",
    "f16c", "fma", "fma4", "xop", "gfni", "avxvnni", "avxifma", "avxneconvert", "avxvnniint8", "avxvnniint16",
    "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2",
    "avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16", "avx512fp16", "avx512vp2intersect",
    "neon", "dotprod", "fullfp16", "i8mm", "bf16", "sve", "sve2", "v",
})  # fmt: skip
"""The features for which compilers can generate code, if they are told to: a program that was compiled so needs them,
and the runtime knows how to look for each (`runtime/native/src/manifest/cpu.c`)."""
_DECISIVE = ("avx", "fma", "neon", "sse")
"""What begins so decides of which family a processor is; a hypervisor may hide any of the rest."""
KNOWN_FEATURES = COMPILED_FOR.union(
    *(row.features for row in ROWS.values()), *(one.needs | one.unless for one in INSTRUCTIONS)
)
"""The features of processors that anything here asks about."""


def family_row(arch: str, features: frozenset[str]) -> Machine:
    """Return the row with the most features of those whose decisive ones are all there; the least one if none is."""
    rows = [row for row in ROWS.values() if row.arch == arch]
    fitting = [row for row in rows if {name for name in row.features if name.startswith(_DECISIVE)} <= features]
    return max(fitting, key=lambda row: len(row.features), default=rows[0] if rows else GENERIC)


def with_features(row: Machine, *features: str) -> Machine:
    """Return a machine with features beyond those of its family, and the instructions that they bring.

    Raises MachineError for a feature that no machine of its architecture is asked for.
    """
    rows = (other.features for other in ROWS.values() if other.arch == row.arch)
    asked = (one.needs | one.unless for one in INSTRUCTIONS if one.arch == row.arch)
    known = row.features.union(*rows, *asked)
    for name in features:
        if name not in known:
            raise MachineError(
                f"unknown feature '{name}' of target '{row.name}'; {_hint(name, sorted(known))}",
                machine=row.name,
                feature=name,
            )
    own = row.features | set(features)
    brought = [one for one in instructions_of(row.arch, own) if not row.has(one.name)]
    kept = [one for one in row.instructions if not one.unless & own]
    name = "+".join((row.name, *features))
    return replace(row, name=name, features=own, instructions=(*kept, *brought))


def machine_named(name: str, others: Callable[[], Mapping[str, Machine]] = dict) -> Machine:
    """Return the machine called ``name``: a row, one of ``others`` (those of plugins), or one with ``+feature`` added.

    Raises MachineError, naming the nearest, if there is none.
    """
    if name in ROWS:
        return ROWS[name]
    known = {**others(), **ARCHITECTURES, **ROWS}
    words = name.split("+")
    for count in range(len(words), 0, -1):  # names of rows may have features, too
        row = known.get("+".join(words[:count]))
        if row is not None:
            return with_features(row, *words[count:]) if words[count:] else row
    names = (NATIVE, *(one for one in known if one not in ARCHITECTURES))
    raise MachineError(f"unknown target '{name}'; {_hint(name, names)}", machine=name)


ALIKE = 0.65
"""How alike names are of which one is advised for the other: `s390x` is no `sm_90`."""


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    # What runs on sm_90 does not on sm_70: later machines are no advice.
    near = difflib.get_close_matches(name, [one for one in names if _numbers(one) <= _numbers(name)], 1, ALIKE)
    guess = f"did you mean '{near[0]}'? " if near else ""
    return f"{guess}there are {', '.join(names)}"
