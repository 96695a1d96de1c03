from pathlib import Path

import pytest

from graft.core.machine.machine import Machine, Memory
from graft.core.machine.rows import ROWS, machine_named, with_features
from graft.core.machine.target import Target
from graft.core.schedule.products.tiling import choose_tile, lanes_of
from graft.errors import MachineError
from tests.docs.blocks import blocks


def test_a_row_with_a_feature_has_the_instructions_that_it_brings() -> None:
    assert not ROWS["x86-64-v4"].has("dot4_u8s8")
    row = machine_named("x86-64-v4+avx512vnni")
    assert row.name == "x86-64-v4+avx512vnni"
    assert row.has("dot4_u8s8")
    assert not row.has("dot2_bf16")


def test_dot_products_of_narrow_vectors_are_data_alone() -> None:
    row = machine_named("x86-64-v3+avxvnni")
    assert row.instruction("dot4_u8s8", 8) is not None
    assert row.instruction("dot4_u8s8", 16) is None
    assert machine_named("armv8-a+i8mm").instruction("dot4_u8s8", 4) is not None


def test_a_row_whose_name_has_a_plus_is_found_as_it_stands() -> None:
    assert machine_named("wasm32+simd128") is ROWS["wasm32+simd128"]


def test_a_feature_is_added_to_the_row_with_the_longest_name() -> None:
    row = machine_named("wasm32+relaxed-simd+atomics")
    assert row.features == {"simd128", "relaxed-simd", "atomics"}
    assert row.vectors == ROWS["wasm32+relaxed-simd"].vectors


def test_an_unknown_feature_is_refused_with_the_nearest() -> None:
    with pytest.raises(MachineError) as caught:
        machine_named("armv8-a+i8m")
    assert str(caught.value) == ("unknown feature 'i8m' of target 'armv8-a'; did you mean 'i8mm'? there are i8mm, neon")


def test_machines_of_others_are_asked_for_only_when_no_row_is_called_so() -> None:
    own = Machine("npu", "npu", memories=(Memory("host"),))
    assert machine_named("npu", lambda: {"npu": own}) is own
    assert machine_named("riscv64", lambda: pytest.fail("nobody was to be asked")) is ROWS["riscv64"]


def test_features_that_are_there_already_bring_nothing() -> None:
    row = ROWS["x86-64-v3"]
    assert with_features(row, "fma").instructions == row.instructions


@pytest.mark.parametrize(("name", "lanes"), [("x86-64-v4", 16), ("x86-64-v3", 8), ("armv8-a", 4), ("generic", 1)])
def test_tiles_follow_from_vectors_and_registers(name: str, lanes: int) -> None:
    target = Target(ROWS[name])
    tile = choose_tile(256, 1024, "float32", target)
    assert tile.lanes == lanes_of("float32", target) == lanes
    assert tile.rows * tile.vectors + tile.vectors + 1 < target.machine.registers


def test_the_row_that_the_architecture_page_shows_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text(encoding="utf-8")
    (shown,) = [block.text for block in blocks(page) if block.language == "python" and "CORTEX_A55" in block.text]
    exec(shown, {})
