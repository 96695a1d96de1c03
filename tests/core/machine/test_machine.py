"""A row that contradicts itself is refused, saying what and what to write instead."""

from dataclasses import replace

import pytest

from graft.core.machine.machine import KIB, Costs, Instruction, Level, Machine, Memory
from graft.errors import MachineError

L1, L2 = Memory("l1", 32 * KIB, seen_by="thread", is_cache=True), Memory("l2", 256 * KIB, is_cache=True)
HOST = Memory("host")
ROW = Machine("toy", "toy", vectors=(128,), registers=16, memories=(L1, L2, HOST))
ADD = Instruction("add2", "a[0] + b[0]", {"c": "add2"}, frozenset({"adder"}))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"arch": ""}, "its name is 'toy' and its architecture ''; give it both"),
        ({"vectors": (96,)}, "vectors of 96 bits; widths are powers of two, at least 8"),
        ({"registers": 0}, "0 registers; a kernel needs at least one"),
        (
            {"vectors": (), "masks": True},
            "it switches lanes off but has no vectors; leave masks False or give it vectors",
        ),
        ({"levels": (Level("thread"), Level("thread"))}, "two levels are called 'thread'; give each its own name"),
        ({"levels": (Level(""),)}, "one of its levels has no name; give it one"),
        (
            {"levels": (Level("thread", -1),)},
            "level 'thread' has -1 units; 0 stands for as many as the system gives",
        ),
        ({"memories": (L1, L1, HOST)}, "two memories are called 'l1'; give each its own name"),
        ({"memories": (L1,)}, "no memory behind its caches; name the one that tensors are in last"),
        ({"memories": ()}, "no memory behind its caches; name the one that tensors are in last"),
        (
            {"memories": (Memory("register"), HOST)},
            "a memory is called 'register', as its registers are; give it another name",
        ),
        (
            {"memories": (L2, L1, HOST)},
            "cache 'l1' (32768 bytes) is outside 'l2' (262144 bytes) and smaller; list caches from the nearest on",
        ),
        (
            {"memories": (replace(L1, bytes=0), HOST)},
            "cache 'l1' has no size; give it bytes",
        ),
        (
            {"memories": (replace(L1, seen_by="warp"), HOST)},
            "memory 'l1' is seen by 'warp'; there are machine, thread",
        ),
        (
            {"memories": (replace(L1, line=48), HOST)},
            "memory 'l1' has lines of 48 bytes, 8 of a set; a line is a power of two, a set at least one",
        ),
        (
            {"memories": (replace(HOST, bytes=-1),)},
            "memory 'host' has -1 bytes, 8.0 a cycle; 0 stands for as many as there are, and some come in a cycle",
        ),
        (
            {"instructions": (ADD,)},
            "instruction 'add2' needs adder, which it lacks; add the feature or leave it out",
        ),
        (
            {"instructions": (replace(ADD, needs=frozenset(), arch="other"),)},
            "instruction 'add2' is of 'other', not of 'toy'; leave it out",
        ),
        (
            {"instructions": (replace(ADD, text={}),), "features": frozenset({"adder"})},
            "instruction 'add2' has no text in any language; give it one",
        ),
        (
            {"instructions": (replace(ADD, lanes=(4, 8)), replace(ADD, lanes=(8,))), "features": ADD.needs},
            "instruction 'add2' of 8 lanes stands twice; leave one of them out",
        ),
        ({"costs": Costs(fused=0)}, "costs.fused is 0; it is more than 0"),
        ({"costs": Costs(task=-1)}, "costs.task is -1; it is at least 0"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(MachineError) as caught:
        replace(ROW, **changes)  # type: ignore[arg-type]
    assert str(caught.value) == f"machine 'toy': {fault}"
    assert caught.value.machine == "toy"


def test_caches_are_counted_from_the_nearest_and_the_last_stands_for_those_that_are_missing() -> None:
    assert [ROW.cache(level).name for level in (1, 2, 3)] == ["l1", "l2", "l2"]
    assert ROW.far is HOST


def test_a_machine_without_caches_has_its_nearest_memory_in_their_place() -> None:
    bare = replace(ROW, memories=(Memory("sram", 64 * KIB), HOST))
    assert bare.cache(1).bytes == bare.cache(2).bytes == 64 * KIB


def test_blocks_plan_for_a_small_cache_and_for_no_more_of_a_large_one_than_is_worthwhile() -> None:
    large = replace(ROW, memories=(replace(L1, bytes=48 * KIB), replace(L2, bytes=2048 * KIB), HOST))
    assert [ROW.working_set(level) for level in (1, 2)] == [32 * KIB, 256 * KIB]
    assert [large.working_set(level) for level in (1, 2, 3)] == [32 * KIB, 1024 * KIB, 2048 * KIB]


def test_a_memory_without_a_bound_is_larger_than_anything() -> None:
    assert HOST.size > 1 << 60
    assert L1.size == 32 * KIB


def test_rows_of_a_matrix_are_in_as_many_sets_as_their_distance_tells() -> None:
    cache = Memory("l1", 32 * 1024, line=64, ways=8, is_cache=True)
    assert cache.sets == 64
    assert [cache.sets_of(stride) for stride in (64, 4096, 2048, 1024 + 4096, 8192, 100)] == [64, 1, 2, 4, 1, 64]


def test_buffers_are_in_registers_and_in_memories_but_not_in_caches() -> None:
    assert ROW.places == ("host", "register")
    assert ROW.memory("l1") is None


def test_an_instruction_is_found_by_its_name_and_the_lanes_of_its_result() -> None:
    wide, narrow = replace(ADD, lanes=(8,)), replace(ADD, lanes=(4,))
    row = replace(ROW, features=ADD.needs, instructions=(wide, narrow))
    assert row.has("add2")
    assert row.instruction("add2") is wide
    assert row.instruction("add2", 4) is narrow
    assert row.instruction("add2", 2) is None
