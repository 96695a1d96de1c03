"""Sessions: a program on a device gives what it gives here, says what its calls take, and has clear errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.tuning.options import TuneOptions
from graft.errors import ArtifactError, DeviceError, InputError
from graft.measure.device.boards import BOARDS, Board, HostBoard, board_named
from graft.measure.device.session import Session, TuningDevice
from graft.plugins.c_source.backend import CBackend
from graft.runtime.procedure import ProgramDescription

X, Z = np.array([[1, -2, 3]], np.float32), np.array([[5]], np.float32)
TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,3] x, float[1,1] z) => (float[1,2] y, float[1,1] r) <float[3,2] w = {1,2,3,4,5,6}> {
  [product] y = MatMul(x, w) [squash] r = Tanh(z)
}"""


def description(text: str = TEXT, target: str = "generic", **requested: object) -> ProgramDescription:
    request = Request([CBackend(compiles=False)], threads=1, target=target, **requested)  # type: ignore[arg-type]
    made: ProgramDescription = compile_model(onnx.parser.parse_model(text), request).description
    return made


def boards() -> list[object]:
    reasons = {name: board.missing() for name, board in BOARDS.items()}
    return [pytest.param(name, marks=pytest.mark.skipif(bool(why), reason=why)) for name, why in reasons.items()]


@pytest.mark.parametrize("board", boards())
def test_a_program_runs_on_a_board_and_says_what_its_calls_take(board: str) -> None:
    with Session.open(description(target=BOARDS[board].target), board) as session:
        for sign in (1, -1):
            y, r = session.run(sign * X, sign * Z)
            assert y.tolist() == [[10 * sign, 12 * sign]]
            assert np.allclose(r, np.tanh(sign * Z))
        assert [one.call.origin for one in session.times] == [("product",), ("squash",)]
        assert sum(one.ticks for one in session.times) <= session.ticks


def tunable(rows: int) -> str:
    return TEXT.replace("float[1,3] x", f"float[{rows},3] x").replace("float[1,2] y", f"float[{rows},2] y")


def test_tuning_measures_on_the_device_and_is_used_for_its_target_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[dict[str, int]] = []

    class Counter:
        def bench(self, program: ProgramDescription, arrays: Sequence[np.ndarray]) -> Callable[[], float]:
            (source,) = (module.source for module in program.modules)
            assert source is not None
            asked.append({"bytes": len(source.text), "arrays": len(arrays)})
            return lambda: 1e-6 * len(source.text)

    tuning = TuneOptions(seconds=60, device=Counter())
    tuned = description(tunable(7), "thumbv7em", tune=tuning, tuned=True)
    assert {one["arrays"] for one in asked} == {1}, "the weights are in the program"
    again = description(tunable(7), "thumbv7em", tuned=True)
    plain = description(tunable(7), "thumbv7em", tuned=False)
    shortest, first = min(one["bytes"] for one in asked), asked[0]["bytes"]
    assert shortest < first
    texts = [one.modules[0].source.text for one in (tuned, again, plain) if one.modules[0].source is not None]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


@pytest.mark.slow
@pytest.mark.skipif(bool(BOARDS["mps2-an386"].missing()), reason=BOARDS["mps2-an386"].missing())
def test_a_kernel_is_tuned_by_its_instructions_on_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    board = board_named("mps2-an386")
    tuning = TuneOptions(seconds=120, device=TuningDevice(board))
    costs = []
    for requested in ({"tuned": False}, {"tune": tuning, "tuned": True}):
        with Session.open(description(tunable(64), board.target, **requested), board) as session:
            session.run(np.ones((64, 3), np.float32), Z)
            costs.append(session.times[0].ticks)
    assert costs[1] <= costs[0]


def test_inputs_are_checked_before_they_are_sent() -> None:
    with Session.open(description()) as session:
        with pytest.raises(InputError) as raised:
            session.run(X.astype(np.float64), Z)
        assert raised.value.message == "input 'x' is float32[1, 3], got float64[1, 3]"
        with pytest.raises(InputError) as raised:
            session.run(X)
        assert raised.value.message == "the program has 2 inputs, got 1"
        assert session.run(X, Z)[0].tolist() == [[10, 12]]


def test_a_shape_that_varies_is_refused() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    with pytest.raises(ArtifactError) as raised:
        Session.open(description(text, dims={"n": (1, 4)}, memory="maximum"))
    assert raised.value.message == (
        "a device runs one shape, and that of 'x' varies; compile the model with shapes or dims that give each "
        "dimension a number"
    )


def test_a_board_that_is_not_known() -> None:
    with pytest.raises(DeviceError) as raised:
        board_named("uno")
    assert raised.value.message == "there is no board 'uno'; there are host, mps2-an386"


@dataclass(frozen=True, slots=True)
class Odd:
    """A board whose program is another."""

    command: tuple[str, ...]
    name: ClassVar[str] = "odd"
    target: ClassVar[str] = "generic"
    unit: ClassVar[tuple[str, float]] = ("nanoseconds", 1.0)

    def missing(self) -> str:
        return ""

    def image(self, project: Path, name: str) -> Sequence[str]:
        return self.command


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("sleep", "60"), "board 'odd' did not answer within 0.2 s"),
        (("sh", "-c", "exit 3"), "board 'odd' ended with status 3"),
    ],
)
def test_a_board_that_does_not_answer(command: tuple[str, ...], message: str) -> None:
    board: Board = Odd(command)
    with Session.open(description(), board, limit=0.2) as session, pytest.raises(DeviceError) as raised:
        session.run(X, Z)
    assert raised.value.message == message


def test_an_image_that_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises((DeviceError, graft.GraftError)):
        Session.open(description(), HostBoard())


def test_a_request_for_what_is_not_there_is_refused() -> None:
    with Session.open(description()) as session:
        with pytest.raises(DeviceError) as raised:
            session.line.ask(2, 9, b"abc")
        assert raised.value.message == "the program on board 'host' returned 100"
        assert session.run(X, Z)[0].tolist() == [[10, 12]], "and the line is where it was"
