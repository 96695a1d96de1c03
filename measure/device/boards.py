"""The boards that a session runs on: how a project becomes an image of each, and what starts it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from graft.core.machine.rows import GENERIC, THUMBV7EM
from graft.errors import CompileError, DeviceError
from graft.runtime.export.c_build import BOARD_COMPILERS, FLAGS
from graft.runtime.system.c_compiler import c_compiler

HERE = Path(__file__).parent
NOT_BUILT = ("main.c", "_check.c")
"""Files of a project that a session has no use for."""


class Board(Protocol):
    """A machine that runs C projects, or what emulates it."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    @property
    def target(self) -> str:
        """The row of machines that it is one of."""
        ...

    @property
    def unit(self) -> tuple[str, float]:
        """What its clock counts, for people, and how many of these a tick is."""
        ...

    def missing(self) -> str:
        """Return what has to be installed, "" if nothing."""
        ...

    def image(self, project: Path, name: str) -> Sequence[str]:
        """Build a project with a session, and return the command that starts it with the serial line as its pipes."""
        ...


@dataclass(frozen=True, slots=True)
class HostBoard:
    """A process of this machine in the place of a board."""

    name: ClassVar[str] = "host"
    target: ClassVar[str] = GENERIC.name
    unit: ClassVar[tuple[str, float]] = ("nanoseconds", 1.0)

    def missing(self) -> str:
        """Return why there is no C compiler, "" if there is one."""
        try:
            c_compiler()
        except CompileError as error:
            return error.message
        return ""

    def image(self, project: Path, name: str) -> Sequence[str]:
        """Compile with the system's compiler."""
        image = project / "build" / name
        image.parent.mkdir(exist_ok=True)
        sources = [*sources_of(project), HERE / "host" / "host.c"]
        flags = ["-std=gnu11", "-O2", "-ffp-contract=off", f"-I{project}"]
        _built([*c_compiler(), *flags, *map(str, sources), "-o", str(image), "-lm"], self.name)
        return [str(image)]


@dataclass(frozen=True, slots=True)
class Mps2An386:
    """A Cortex-M4 in QEMU: one instruction takes a nanosecond, its 25 MHz timer ticks every 40."""

    compiler: Sequence[str] = tuple(BOARD_COMPILERS["thumb"].split())
    """With the flags of the processor, and how it optimises."""

    name: ClassVar[str] = "mps2-an386"
    target: ClassVar[str] = THUMBV7EM.name
    unit: ClassVar[tuple[str, float]] = ("instructions", 40.0)

    def missing(self) -> str:
        """Return the Debian packages that are missing."""
        needed = {"qemu-system-arm": "qemu-system-arm", self.compiler[0]: "gcc-arm-none-eabi libnewlib-arm-none-eabi"}
        packages = [package for command, package in needed.items() if shutil.which(command) is None]
        return f"needs Debian's {' '.join(packages)}" if packages else ""

    def image(self, project: Path, name: str) -> Sequence[str]:
        """Compile with the board's start-up code."""
        image, own = project / "build" / f"{name}.elf", HERE / "mps2_an386"
        image.parent.mkdir(exist_ok=True)
        flags = ["-std=c11", *FLAGS, f"-I{project}"]
        link = ["-nostartfiles", "--specs=nano.specs", "-T", str(own / "mps2_an386.ld"), "-Wl,--gc-sections"]
        sources = [*sources_of(project), *sorted(own.glob("*.c"))]
        command = [*self.compiler, *flags, *link, *map(str, sources), "-o", str(image), "-lm"]
        _built(command, self.name)
        return [
            "qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "stdio",
            "-icount", "shift=0", "-chardev", "null,id=text", "-semihosting-config",
            "enable=on,target=native,chardev=text", "-kernel", str(image),
        ]  # fmt: skip


BOARDS: dict[str, Board] = {board.name: board for board in (HostBoard(), Mps2An386())}


def board_named(name: str) -> Board:
    """Return a board that can be used here; raise DeviceError for another name, or for what is missing."""
    if name not in BOARDS:
        raise DeviceError(f"there is no board '{name}'; there are {', '.join(BOARDS)}", board=name)
    if reason := BOARDS[name].missing():
        raise DeviceError(f"board '{name}' cannot be used here: {reason}", board=name)
    return BOARDS[name]


def counting_board(target: str, compiler: Sequence[str] = ()) -> Board:
    """Return the board that counts instructions of a target, as a compiler makes them; raise DeviceError for none."""
    counting = [one for one in BOARDS.values() if one.unit[0] == "instructions"]
    if target not in {one.target for one in counting}:
        known = ", ".join(f"'{one.target}' ({one.name})" for one in counting)
        raise DeviceError(f"instructions are counted on an emulated core, and target '{target}' has none; {known} has")
    board = Mps2An386(tuple(compiler)) if compiler else Mps2An386()
    if reason := board.missing():
        raise DeviceError(f"board '{board.name}' cannot be used here: {reason}", board=board.name)
    return board


def sources_of(project: Path) -> list[Path]:
    """Return the C files of a project that an image is made of, and the weights that an assembler brings in."""
    found = [path for path in sorted(project.glob("*.[cS]")) if not path.name.endswith(NOT_BUILT)]
    return found


def _built(command: Sequence[str], board: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise DeviceError(f"the image for board '{board}' cannot be built: {done.stderr.strip()}", board=board)
