"""What the system says of a machine, on trees that look like its own."""

import os
from pathlib import Path

import pytest

from graft.core.machine.host import available_threads, host_machine, read_machine
from graft.core.machine.machine import KIB, MIB, Machine
from graft.core.machine.rows import COMPILED_FOR, ROWS

V3 = "fpu cmov cx8 fxsr mmx sse sse2 cx16 popcnt lahf_lm pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = f"{V3} xsave avx512bw avx512cd avx512dq avx512f avx512vl"
INTEL = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\nflags : {flags}\n\nprocessor : 1\n"
ARM = "processor : 0\nFeatures : fp asimd i8mm\nCPU implementer : 0x41\nCPU part : 0xd40\n"


def unknown(name: str) -> int:
    raise ValueError(f"no {name}")


def tree(place: Path, text: str, *caches: tuple[int, str, str, str, str]) -> tuple[Path, Path]:
    """Write the two descriptions; a cache is (level, type, size, ways, line)."""
    for number, row in enumerate(caches):
        folder = place / "cpu" / "cpu0" / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        names = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        for name, value in zip(names, row, strict=True):
            (folder / name).write_text(f"{value}\n")
    (place / "cpuinfo").write_text(text)
    return place / "cpuinfo", place / "cpu"


def caches_of(machine: Machine) -> list[tuple[str, int, int, int]]:
    return [(cache.name, cache.bytes, cache.ways, cache.line) for cache in machine.caches]


def test_features_and_caches_are_those_that_the_system_names(tmp_path: Path) -> None:
    place = tree(
        tmp_path, INTEL.format(flags=f"{V4} avx512_vnni avx_vnni amx_tile"),
        (1, "Data", "48K", "12", "64"), (1, "Instruction", "32K", "8", "64"),
        (2, "Unified", "2048K", "16", "64"), (3, "Unified", "105M", "15", "64"),
    )  # fmt: skip
    machine = read_machine("x86_64", *place, unknown)
    assert (machine.name, machine.arch, machine.cpu) == ("native", "x86_64", "GenuineIntel-6-143")
    assert caches_of(machine) == [("l1", 48 * KIB, 12, 64), ("l2", 2 * MIB, 16, 64), ("l3", 105 * MIB, 15, 64)]
    assert {"sse4.1", "sse3", "lzcnt", "sahf", "bmi", "avx512vnni"} <= machine.features
    assert "fpu" not in machine.features
    assert machine.has("dot4_u8s8")
    assert machine.vectors == (128, 256, 512)


def test_code_is_generated_for_the_family_and_for_what_instructions_need_and_not_for_the_rest(tmp_path: Path) -> None:
    place = tree(tmp_path, INTEL.format(flags=f"{V4} avx512_vbmi2 avx512_vnni gfni sse4a amx_bf16"))
    machine = read_machine("x86_64", *place, unknown)
    assert not machine.features & {"avx512vbmi2", "gfni", "sse4a"}
    assert machine.features & COMPILED_FOR == (ROWS["x86-64-v4"].features & COMPILED_FOR) | {"avx512vnni"}
    assert "amx-bf16" in machine.features, "what is asked and generates no code stays"


def test_a_processor_with_a_feature_hidden_is_still_of_its_family(tmp_path: Path) -> None:
    place = tree(tmp_path, INTEL.format(flags=V3.replace("movbe", "")))
    assert read_machine("AMD64", *place, unknown).vectors == ROWS["x86-64-v3"].vectors


def test_arm_processors_are_read_by_their_own_names(tmp_path: Path) -> None:
    place = tree(tmp_path, ARM, (1, "Data", "64K", "4", "64"), (2, "Unified", "1M", "8", "64"))
    machine = read_machine("aarch64", *place, unknown)
    assert (machine.cpu, machine.features) == ("0x41-0xd40", {"neon", "i8mm"})
    assert caches_of(machine) == [("l1", 64 * KIB, 4, 64), ("l2", MIB, 8, 64)]
    assert machine.instruction("dot4_u8s8", 4) is not None


def test_without_descriptions_the_least_row_of_the_architecture_stands(tmp_path: Path) -> None:
    machine = read_machine("x86_64", tmp_path / "none", tmp_path / "none", unknown)
    row = ROWS["x86-64"]
    assert (machine.name, machine.features, machine.memories) == ("native", row.features, row.memories)


def test_an_architecture_without_a_row_is_a_generic_machine(tmp_path: Path) -> None:
    machine = read_machine("sparc64", tmp_path / "none", tmp_path / "none", unknown)
    assert (machine.arch, machine.vectors) == ("sparc64", ())


def test_caches_that_sys_does_not_have_are_asked_of_the_library(tmp_path: Path) -> None:
    known = {"SC_LEVEL1_DCACHE_SIZE": 32768, "SC_LEVEL2_CACHE_SIZE": 1 << 20, "SC_LEVEL3_CACHE_SIZE": 0}
    place = tree(tmp_path, INTEL.format(flags=V3))
    machine = read_machine("x86_64", *place, lambda name: known.get(name, -1 if "LINE" in name else 0))
    assert caches_of(machine) == [("l1", 32 * KIB, 8, 64), ("l2", MIB, 8, 64)]


@pytest.mark.parametrize("size", ["", "0K", "many"])
def test_a_cache_of_no_size_is_left_out(tmp_path: Path, size: str) -> None:
    place = tree(tmp_path, INTEL.format(flags=V3), (1, "Data", "32K", "8", "64"), (2, "Unified", size, "8", "64"))
    assert [cache.name for cache in read_machine("x86_64", *place, unknown).caches] == ["l1"]


def test_caches_that_shrink_outward_are_not_believed(tmp_path: Path) -> None:
    place = tree(tmp_path, INTEL.format(flags=V3), (1, "Data", "1M", "8", "64"), (2, "Unified", "32K", "8", "64"))
    assert read_machine("x86_64", *place, unknown).memories == ROWS["x86-64-v3"].memories


def test_the_machine_here_has_as_many_threads_as_may_be_used() -> None:
    assert host_machine().levels[0].count == available_threads() >= 1


@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        ("max 100000", 8),
        ("150000 100000", 2),
        ("200000 100000", 2),
        ("50000 100000", 1),
        ("0 1", 1),
        ("900 100", 8),
        ("odd", 8),
    ],
)
def test_threads_are_the_processors_within_the_quota_rounded_up(
    monkeypatch: pytest.MonkeyPatch, quota: str, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {process, *range(8)}, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: quota)
    assert available_threads() == threads


def test_a_system_that_does_not_tell_its_processors_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: "max 100000")
    for count, threads in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert available_threads() == threads
