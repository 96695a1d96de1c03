"""Schedules that a user gives: what is computed stays the same, and what cannot be taken is said with its place."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from onnx import numpy_helper, parser

import graft
from graft.core.schedule.primitives.schedule_text import machine_name, print_schedules
from graft.errors import ArgumentError, ScheduleError

PRODUCT = """<ir_version: 10, opset_import: ["": 20]>
    products (float[12, 20] x) => (float[12, 33] y) { p = MatMul(x, w)  y = Relu(p) }"""
TILED = """
split j 16 -> j0 j1     # columns in vectors
split i 4 -> i0 i1
reorder i0 j0 i1 j1
compute_at total at j0
split j.sum 16 -> v.sum j.sum
reorder k v.sum i.sum j.sum
pack w 1 16 -> panels
vectorize j.sum
vectorize j1
parallel i0
"""
OPEN = PRODUCT.replace("float[12, 20] x", "float[rows, 20] x").replace("float[12, 33] y", "float[rows, 33] y")


def model(text: str = PRODUCT):
    made = parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((20, 33)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return made


def run(text: str = PRODUCT, **options) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((12, 20)).astype(np.float32)
    return graft.compile(model(text), ["llvm"], threads=2, cache=False, tuned=False, **options)(x)


def names(text: str = PRODUCT, **options) -> list[str]:
    program = graft.compile(model(text), ["llvm"], threads=2, cache=False, tuned=False, **options)
    return [f"{one.name} {call.function}" for one in program.description.procedures for call in one.calls]


@pytest.mark.parametrize("text", [PRODUCT, OPEN])
def test_a_product_by_given_steps_is_what_it_is_without(text):
    name = names(text)[0].split()[-1]
    steps = TILED if text is PRODUCT else "split j 8 -> j0 j1\nparallel i\nvectorize j1\n"
    assert np.array_equal(run(text, schedules={name: steps}), run(text))


def test_what_is_given_is_what_the_program_says(tmp_path):
    (name,) = (one.split()[1] for one in names())
    file = tmp_path / "schedules"
    file.write_text(f"# mine\n[{name}]  # tiles\n{TILED}")
    program = graft.compile(model(), ["llvm"], threads=2, cache=False, tuned=False, schedules=file)
    (call,) = program.description.procedures[0].calls
    assert call.schedule["strategy"] == "given"
    assert call.schedule["steps"].splitlines()[0] == "split j 16 -> j0 j1"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("\nsplit k 0 -> a b", "line 2: cannot 'split k 0 -> a b'"),
        ("parallel k", "line 1: cannot 'parallel k'"),
        ("pack x 0 4 -> p\nparallel i", "line 1: cannot 'pack x 0 4 -> p': 'x' is no constant"),
        ("spilt k 4 -> a b", "schedule, line 1: there is no primitive 'spilt'"),
        ("guard k", "line 1: cannot 'guard k': no buffer that is written is called 'k'"),
        ("pack w 0 2000 -> p", "line 1: cannot 'pack w 0 2000 -> p': 'w' has 2 axes, and panels have 1 to 1024 elem"),
        ("bind i block.x", "no level 'block' on the machine 'native', which has thread$"),
        ("cache_read x at k in shared -> near", "no memory 'shared' on the machine 'native', which has "),
    ],
)
def test_a_step_that_cannot_be_taken_stops_the_compilation(steps, message):
    (name,) = (one.split()[1] for one in names())
    with pytest.raises(ScheduleError, match=f"^the schedule of kernel '{name}': {message}"):
        run(schedules={name: steps})


def test_schedules_of_no_kernel_are_named(caplog):
    (name,) = (one.split()[1] for one in names())
    with caplog.at_level(logging.WARNING, "graft.schedules"):
        run(schedules={name + "s": "parallel i"})
    assert f"the schedule of '{name}s' is not used: no kernel of the program is called so; did you mean '{name}'" in (
        caplog.text
    )
    with pytest.raises(ScheduleError, match="is not used"):
        run(schedules={name + "s": "parallel i"}, strict=True)


def test_schedules_of_another_machine_are_named(tmp_path, caplog):
    (name,) = (one.split()[1] for one in names())
    targets = graft.compile(model(), ["llvm"], threads=2, cache=False).description.targets
    file = tmp_path / "schedules"
    file.write_text(print_schedules({name: "parallel i\n"}, {}, targets))
    run(schedules=file, strict=True)
    file.write_text(print_schedules({name: "parallel i\n"}, {}, [{"arch": "z80", "features": ["ld", "jp"]}]))
    with caplog.at_level(logging.WARNING, "graft.schedules"):
        run(schedules=file)
    own = machine_name(targets).removeprefix("machine ")
    message = (
        f"the schedules are for 'z80 ld+jp', the program is for '{own}': their steps are legal here, and may be slow"
    )
    assert message in caplog.text
    with pytest.raises(ScheduleError, match="the schedules are for 'z80"):
        run(schedules=file, strict=True)


def test_versions_have_schedules_of_their_own():
    general, version = names(OPEN, specialize={"rows": [12]})
    assert "[rows=12] " in version
    steps = {general.split()[1]: "parallel i", version: TILED}
    program = graft.compile(
        model(OPEN), ["llvm"], threads=2, cache=False, tuned=False, specialize={"rows": [12]}, schedules=steps
    )
    shown = [call.schedule["steps"] for one in program.description.procedures for call in one.calls]
    assert [one.splitlines()[0] for one in shown] == ["parallel i", "split j 16 -> j0 j1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("parallel i\n", "line 1: 'parallel i' comes before the name of a kernel"),
        ("[a]\nparallel i\n[a]\n", r"line 3: '\[a\]' is a second schedule of a kernel"),
        ("[machine z80 ld]\nparallel i\n", "line 2: 'parallel i' comes before the name of a kernel"),
        ("[]\n", r"line 1: '\[\]' is no name of a kernel"),
        ("[a]\n# nothing\n", "the schedule of 'a' has no steps"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_with_its_line(text, message, tmp_path):
    file = tmp_path / "schedules"
    file.write_text(text)
    with pytest.raises(ScheduleError, match=message):
        run(schedules=file)


def test_a_byte_order_mark_and_line_ends_of_other_systems_are_no_part_of_a_schedule(tmp_path):
    (name,) = (one.split()[1] for one in names())
    file = tmp_path / "schedules"
    file.write_bytes(f"\ufeff[{name}]\n{TILED}".replace("\n", "\r\n").encode())
    assert np.array_equal(run(schedules=file), run())


def test_a_file_without_schedules_is_named(tmp_path, caplog):
    file = tmp_path / "schedules"
    file.write_text("# all was cut off\n")
    with caplog.at_level(logging.WARNING, "graft.schedules"):
        run(schedules=file)
    assert f"'{file}' has no schedules, and changes nothing" in caplog.text


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ScheduleError, match="cannot be read"):
        run(schedules=tmp_path / "none")
    with pytest.raises(ArgumentError):
        run(schedules=3)
