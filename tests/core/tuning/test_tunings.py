"""The database of tunings: what is kept for whom."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from graft.core.machine.machine import Machine, Memory
from graft.core.machine.target import Target
from graft.core.schedule.parameters import ContractionParameters, WinogradParameters
from graft.core.tuning.database import Database
from graft.core.tuning.tunings import ADDED, COLUMNS, Row, Tuning, Tunings, machine_of, workload_key
from graft.errors import DatabaseError

FIRST = Tuning("matmul 4x5, 5x6", ContractionParameters(rows=3, packing="packed at once"), 1.5e-3, 2e-3, 1)
WRITER = """
import sys
from pathlib import Path
from graft.core.schedule.parameters import ContractionParameters
from graft.core.tuning.tunings import Tuning, Tunings

path, name = sys.argv[1:]
tunings = Tunings(Path(path), "here", "now")
sys.stdin.readline()
for number in range(40):
    tunings.keep(f"{name}{number}", Tuning(name, ContractionParameters(rows=number + 1), 1.0, 2.0, 1))
    tunings.keep("both", Tuning(name, None, 1.0, 2.0, number))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "graft" / "tuned.sqlite3"


@pytest.mark.parametrize("parameters", [None, FIRST.parameters, WinogradParameters(4, 2, vectors=3)])
def test_a_tuning_survives_the_way_through_the_file(path: Path, parameters: object) -> None:
    tuning = replace(FIRST, parameters=parameters)
    Tunings(path, "here", "now").keep("key", tuning)
    assert Tunings(path, "here", "now").known() == {"key": tuning}
    assert Tunings(path).everything() == [Row("key", "here", "now", tuning)]


def test_nothing_is_known_of_another_machine_or_compiler(path: Path) -> None:
    Tunings(path, "here", "now").keep("key", FIRST)
    assert Tunings(path, "there", "now").known() == {}
    assert Tunings(path, "here", "later").known() == {}
    Tunings(path, "there", "now").keep("key", replace(FIRST, parameters=None))
    assert Tunings(path, "here", "now").known() == {"key": FIRST}
    assert Tunings(path).clear() == 2
    assert Tunings(path, "here", "now").known() == {}


def test_a_machine_is_its_processor_its_features_and_its_threads() -> None:
    row = Machine("znver4", "x86_64", "znver4", frozenset({"avx512f", "avx2"}), memories=(Memory("host"),))
    target = Target(row, 2)
    machine = machine_of(target, 2)
    assert machine == "x86_64 znver4 avx2+avx512f threads=2"
    others = [
        (replace(target, machine=replace(row, cpu="znver3")), 2),
        (replace(target, machine=replace(row, features=frozenset({"avx2"}))), 2),
        (replace(target, without=frozenset({"winograd"})), 2),
        (replace(target, precision="bf16"), 2),
        (target, 1),
    ]
    assert len({machine, *(machine_of(*other) for other in others)}) == 6


def test_what_has_come_less_far_does_not_replace_what_has_come_further(path: Path) -> None:
    tunings = Tunings(path, "here", "now")
    tunings.keep("key", replace(FIRST, stage=2))
    tunings.keep("key", replace(FIRST, stage=1, parameters=None))
    assert tunings.known()["key"].stage == 2
    tunings.keep("key", replace(FIRST, stage=3, parameters=None))
    assert tunings.known()["key"] == replace(FIRST, stage=3, parameters=None)


def test_two_processes_write_at_a_time(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in ("a", "b")
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    for writer in writers:
        _, complaints = writer.communicate(timeout=120)
        assert (writer.returncode, complaints) == (0, b"")
    known = Tunings(path, "here", "now").known()
    assert set(known) == {"both", *(f"{name}{number}" for name in "ab" for number in range(40))}
    assert known["both"].stage == 39
    assert known["b7"].parameters == ContractionParameters(rows=8)


def test_parameters_that_nobody_knows_are_named(path: Path) -> None:
    database = Database(path, "tunings", COLUMNS, "tuned parameters")
    database.write("INSERT INTO tunings VALUES ('key', 'here', 'now', 'x', '{\"family\": \"new\"}', 1, 1, 1)")
    with pytest.raises(DatabaseError) as caught:
        Tunings(path, "here", "now").known()
    assert str(caught.value) == (
        f"the database of tuned parameters '{path}' cannot be used (parameters '{{\"family\": \"new\"}}' are of no "
        "known family; there are contraction, winograd_blocks, attention, block_tile, attention_tile, block, "
        "schedule); delete it, or name another"
    )
    assert Tunings(path, "there", "now").known() == {}


def test_workloads_differ_where_their_structures_do() -> None:
    assert workload_key("a") != workload_key("b")
    assert workload_key("a") == workload_key("a")


def test_parameters_of_an_earlier_version_are_void(path: Path) -> None:
    database = Database(path, "tunings", COLUMNS, "tuned parameters")
    row = '{"family": "depthwise", "chains": 4}'
    database.write(f"INSERT INTO tunings VALUES ('key', 'here', 'now', 'x', '{row}', 1, 1, 1)")
    assert Tunings(path, "here", "now").known() == {}


def test_a_column_of_somebody_elses_is_left_alone(path: Path) -> None:
    Tunings(path, "here", "now").keep("key", FIRST)
    Database(path, "tunings", COLUMNS, "tuned parameters", ADDED).write("ALTER TABLE tunings ADD COLUMN more TEXT")
    Tunings(path, "here", "now").keep("other", FIRST)
    assert Tunings(path, "here", "now").known() == {"key": FIRST, "other": FIRST}


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("parameters", b"\xff", "has no parameters, or one of another type"),
        ("seconds", -1, "has seconds = -1.0, which must be a number from 0 on"),
        ("seconds", float("inf"), "has seconds = inf, which must be a number from 0 on"),
        ("untuned", "x", "has no untuned, or one of another type"),
        ("stage", -3, "has stage = -3, which must be a number from 0 on"),
    ],
)
def test_a_row_that_is_damaged_is_named(path: Path, column: str, value: object, fault: str) -> None:
    Tunings(path, "here", "now").keep("key", Tuning("x", None, 1.0, 1.0, 1))
    Database(path, "tunings", COLUMNS, "tuned parameters", ADDED).write(f"UPDATE tunings SET {column} = ?", value)
    with pytest.raises(DatabaseError) as caught:
        Tunings(path, "here", "now").known()
    assert str(caught.value) == (
        f"the database of tuned parameters '{path}' cannot be used (the row of 'key' {fault}); delete it, or name "
        "another"
    )
