from itertools import pairwise

import pytest

from graft.core.machine.host import host_machine
from graft.core.machine.machine import Machine
from graft.core.machine.rows import ROWS, machine_named
from graft.core.machine.target import Target, host_target, target_named
from graft.errors import MachineError
from graft.plugins.cuda.machines import SM_80, SM_90


def test_native_is_this_machine() -> None:
    assert target_named("native") == host_target()
    assert host_target().machine.name == "native"
    assert host_target().arch in ("x86_64", "aarch64")


def test_a_level_has_the_features_of_the_levels_below() -> None:
    names = [name for name, row in ROWS.items() if row.arch == "x86_64"]
    for lower, higher in pairwise(names):
        assert target_named(lower).features < target_named(higher).features
    assert [target_named(name).vector_bytes for name in names] == [16, 16, 32, 64]


def test_a_target_is_a_machine_and_compile_options() -> None:
    target = target_named("x86-64-v3")
    row = target.machine
    assert isinstance(row, Machine)
    assert (target.arch, target.cpu, target.features) == (row.arch, row.cpu, row.features)
    assert (target.threads, target.precision, target.without) == (0, "float32", frozenset())


def test_what_is_no_machine_makes_no_target() -> None:
    with pytest.raises(MachineError) as caught:
        Target("nvptx64")  # type: ignore[arg-type]
    assert str(caught.value) == ("a target is of a Machine, not of 'nvptx64'; ask target_named for a row by its name")


def test_a_target_that_nobody_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(MachineError) as caught:
        target_named("x86-64-v5")
    assert str(caught.value) == (
        "unknown target 'x86-64-v5'; did you mean 'x86-64-v4'? there are native, x86-64, x86-64-v2, x86-64-v3, "
        "x86-64-v4, armv8-a, riscv64, riscv64+v, thumbv7em, wasm32, wasm32+simd128, "
        "wasm32+relaxed-simd, wasm32+threads, generic"
    )
    assert caught.value.machine == "x86-64-v5"


def test_devices_stand_beside_a_processor() -> None:
    rows = {row.name: row for row in (SM_80, SM_90)}
    target = target_named("sm_80,sm_90", lambda: rows)
    assert (target.machine, target.devices) == (host_machine(), (SM_80, SM_90))
    assert target_named("x86-64-v3, sm_90", lambda: rows) == Target(ROWS["x86-64-v3"], devices=(SM_90,))


def test_two_processors_are_refused() -> None:
    with pytest.raises(MachineError) as caught:
        target_named("x86-64-v3,armv8-a")
    assert str(caught.value) == (
        "target 'x86-64-v3,armv8-a' names two processors, 'x86-64-v3' and 'armv8-a'; a program has one"
    )


@pytest.mark.parametrize(
    ("name", "advice"),
    [("sm_70", ""), ("sm_100", "did you mean 'sm_90'? "), ("x86-64v3", "did you mean 'x86-64-v3'? "), ("s390x", "")],
)
def test_no_later_machine_is_advised(name: str, advice: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_named(name, lambda: {"sm_90": ROWS["x86-64-v3"]})
    assert caught.value.message.startswith(f"unknown target '{name}'; {advice}there are native, sm_90, ")
