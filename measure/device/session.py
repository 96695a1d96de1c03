"""A session: a program on a device, driven over a serial line (the protocol stands in `graft_session.h`).

    with Session.open(description, "mps2-an386") as session:
        (logits,) = session.run(image)
        print(session.instructions)

The program is written as a C project with the device's part of the session, built, and started; to the emulated boards
the line is a pair of pipes.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from types import TracebackType

import numpy as np

from graft.core.tuning.race import Run
from graft.errors import DeviceError, InputError
from graft.measure.device.boards import Board, board_named
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.export.c_check import Recorded
from graft.runtime.export.c_project import export_c_project
from graft.runtime.export.c_session import fixed_shape
from graft.runtime.procedure import Call, ProgramDescription, TensorSpec

SIZES, WRITE, RUN, READ, END = range(1, 6)
LIMIT = 120.0
"""Seconds that a device may take for an answer."""
NAME = "model"


@dataclass(frozen=True, slots=True)
class CallTime:
    """What one call of a run took, in ticks of the board's clock."""

    call: Call
    ticks: int


@dataclass(slots=True)
class Session:
    """A program that is on a device; the process is ended with the session."""

    board: Board
    description: ProgramDescription
    line: Line
    folder: TemporaryDirectory[str]
    ticks: int = 0
    """Of the last run."""
    times: tuple[CallTime, ...] = ()
    """Of its calls, in order."""

    @classmethod
    def open(cls, description: ProgramDescription, board: str | Board = "host", limit: float = LIMIT) -> Session:
        """Build a program for a board, and start it; raise DeviceError where that cannot be done.

        Raises ArtifactError for a program that has no form in C, or whose shapes vary.
        """
        chosen = board_named(board) if isinstance(board, str) else board
        entry = description.procedures[0]
        empty = [np.zeros(fixed_shape(entry.tensors[index]), _dtype(entry.tensors[index])) for index in entry.inputs]
        wanted = [np.zeros(fixed_shape(entry.tensors[index]), _dtype(entry.tensors[index])) for index in entry.outputs]
        folder = TemporaryDirectory(prefix="graft-session-")
        try:
            project = Path(folder.name) / NAME
            export_c_project(
                description, project, Recorded(empty, wanted), name=NAME, profile="bare-metal", session=True
            )
            session = cls(chosen, description, Line.to(chosen, chosen.image(project, NAME), limit), folder)
        except BaseException:
            folder.cleanup()
            raise
        return session

    def run(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run the program on arrays in the order of its inputs; raise InputError for another shape or dtype."""
        entry = self.description.procedures[0]
        if len(inputs) != len(entry.inputs):
            raise InputError(f"the program has {len(entry.inputs)} inputs, got {len(inputs)}")
        for number, (index, array) in enumerate(zip(entry.inputs, inputs, strict=True)):
            tensor = entry.tensors[index]
            if array.shape != fixed_shape(tensor) or array.dtype != _dtype(tensor):
                raise InputError(
                    f"input '{tensor.name}' is {tensor.dtype}{list(fixed_shape(tensor))}, got "
                    f"{array.dtype}{list(array.shape)}"
                )
            self.line.ask(WRITE, number, array.tobytes())
        times = np.frombuffer(self.line.ask(RUN), "<u8")
        calls = [call for call in entry.calls if call.kind == "call"]
        self.ticks = int(times[0])
        self.times = tuple(CallTime(call, int(ticks)) for call, ticks in zip(calls, times[1:], strict=True))
        return tuple(self._output(number) for number in range(len(entry.outputs)))

    @property
    def cost(self) -> float:
        """What the last run took, in what the board counts: ``board.unit``."""
        return self.ticks * self.board.unit[1]

    def close(self) -> None:
        """End the process, and remove what was built."""
        self.line.close()
        self.folder.cleanup()

    def __enter__(self) -> Session:
        """Return the session."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _output(self, number: int) -> np.ndarray:
        entry = self.description.procedures[0]
        tensor = entry.tensors[entry.outputs[number]]
        return np.frombuffer(self.line.ask(READ, number), _dtype(tensor)).reshape(fixed_shape(tensor)).copy()


@dataclass(slots=True)
class Line:
    """The host's end of a serial line: requests, and answers within a time."""

    board: Board
    process: subprocess.Popen[bytes]
    limit: float

    @classmethod
    def to(cls, board: Board, command: Sequence[str], limit: float) -> Line:
        """Start what emulates a board."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return cls(board, process, limit)

    def ask(self, what: int, number: int = 0, data: bytes = b"") -> bytes:
        """Send a request and return what follows its answer; raise DeviceError for an error, or none in time."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(struct.pack("<3I", what, number, len(data)) + data)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        deadline = monotonic() + self.limit
        status, size = struct.unpack("<2I", self._read(8, deadline))
        answer = self._read(size, deadline)
        if status:
            raise DeviceError(f"the program on board '{self.board.name}' returned {status}", board=self.board.name)
        return answer

    def close(self) -> None:
        """Ask for the end, and see to it."""
        try:
            if self.process.poll() is None:
                self.limit = min(self.limit, 5.0)
                self.ask(END)
        except DeviceError:
            pass
        finally:
            self.process.kill()
            self.process.communicate()

    def _read(self, size: int, deadline: float) -> bytes:
        assert self.process.stdout is not None
        found = b""
        while len(found) < size:
            left = deadline - monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise DeviceError(
                    f"board '{self.board.name}' did not answer within {self.limit:g} s", board=self.board.name
                )
            part = os.read(self.process.stdout.fileno(), size - len(found))
            if not part:
                raise self._ended()
            found += part
        return found

    def _ended(self) -> DeviceError:
        status = self.process.wait()
        return DeviceError(f"board '{self.board.name}' ended with status {status}", board=self.board.name)


@dataclass(frozen=True, slots=True)
class TuningDevice:
    """A board as the place where tuning measures kernels (`graft.TuneOptions.device`)."""

    board: Board
    seconds_a_unit: float = 1e-9
    """What one of the board's units counts for: of instructions, a nanosecond each."""

    def bench(self, description: ProgramDescription, arrays: Sequence[np.ndarray]) -> Run:
        """Measure a kernel on the board, and return what says its cost: a board that counts would count the same again.

        Of a clock that is disturbed the least of three runs counts.
        """
        unit, per_tick = self.board.unit
        with Session.open(description, self.board) as session:
            costs = []
            for _ in range(1 if unit == "instructions" else 3):
                session.run(*arrays)
                costs.append(session.times[0].ticks * per_tick * self.seconds_a_unit)
        return lambda: min(costs)


def _dtype(tensor: TensorSpec) -> np.dtype[np.generic]:
    return numpy_dtype(tensor.dtype)
