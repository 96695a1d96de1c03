"""The target of a compilation: a machine and the compile options for its code."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from graft.core.machine.host import host_machine
from graft.core.machine.machine import Machine
from graft.core.machine.rows import NATIVE, machine_named
from graft.errors import GraftError, MachineError
from graft.runtime.system.cache_directory import cache_directory

OPTIMISATIONS = {
    "attention": "scores, mask, Softmax and the product with the values in one kernel",
    "channels-last": "parts of a convolutional network stored with channels last",
    "constant-subgraphs": "what does not depend on the inputs computed when the model is compiled, by compiling it",
    "equal-dimensions": "a version for dimensions of two names that meet in an operator and are equal",
    "fusion": "elementwise operators and moves in the kernel of what they follow",
    "horizontal": "products and convolutions of one input side by side in one kernel",
    "index-checks": "indices compared with the extent of their axis, before Gather, Scatter and their like use them",
    "in-place": "memory shared: by one result after another, by a result and its operand, by a Concat and its parts",
    "integer-arithmetic": "quantised models in integers",
    "patches": "convolutions of small images by computed weights as one product for all images",
    "threads": "loops shared among threads",
    "vector-types": "the vector types of GCC and Clang, in C",
    "views": "Reshape and its like as another shape of the same memory, not as copies",
    "wide-floats": "16-bit floats held in float32, rounded as ever, between the kernels of a region",
    "winograd": "convolutions by Winograd's algorithm",
}
"""What the built-in compiler can do without, by name; the answer is the same within rounding."""


def check_switches(names: Collection[str], known: Collection[str] = tuple(OPTIMISATIONS)) -> frozenset[str]:
    """Return the names as a set; raise GraftError for one that is not in ``known``."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(sorted(known))}"
            raise GraftError(f"there is no optimisation '{name}' to switch off; {hint}", name=name)
    return frozenset(names)


Precision = Literal["float32", "bf16", "fp16", "tf32"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16", "fp16", "tf32")


@dataclass(frozen=True, slots=True)
class Target:
    """A machine and the compile options of its code.

    ``threads`` is how many will run, 0 where that is not known: schedules then leave enough tasks for any usual number.
    ``without`` names the optimisations (`OPTIMISATIONS`) that code for this target does without. ``precision`` is that
    of float32 matrix products and convolutions: ``bf16`` rounds the factors to bfloat16, sums in float32, and keeps
    images between convolutions in bfloat16; ``fp16`` and ``tf32`` are for devices with tensor instructions, and float32
    elsewhere. ``devices`` are what a program may compute on beside its own processor.
    """

    machine: Machine
    threads: int = 0
    without: frozenset[str] = frozenset()
    precision: Precision = "float32"
    devices: tuple[Machine, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.machine, Machine):
            raise MachineError(
                f"a target is of a Machine, not of '{self.machine}'; ask target_named for a row by its name"
            )

    @property
    def arch(self) -> str:
        """The instruction set, such as ``x86_64``."""
        return self.machine.arch

    @property
    def cpu(self) -> str:
        """The processor, as compilers call it."""
        return self.machine.cpu

    @property
    def features(self) -> frozenset[str]:
        """What the processor has beyond the base of its architecture, as compilers call it."""
        return self.machine.features

    @property
    def vector_bytes(self) -> int:
        """The width of the widest vector register in bytes, 0 on a machine without."""
        return self.machine.vector_bytes


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What the user asked for, as every backend's ``compile`` receives it.

    ``threads`` is the number of threads the program will run with; ``strict`` makes a failed region an error;
    ``cache`` is the directory in which a backend may keep compiled code, None to keep none; ``tuned`` is the database
    of what tuning has found, None to use nothing of it; ``schedules`` are texts of schedules by names of kernels
    (docs/schedules.md), for backends whose kernels have names and schedules.
    """

    target: Target
    threads: int = 1
    strict: bool = False
    cache: Path | None = None
    tuned: Path | None = None
    schedules: Mapping[str, str] = field(default_factory=dict)


def target_named(name: str, others: Callable[[], Mapping[str, Machine]] = dict) -> Target:
    """Return the target ``name``: ``native`` for this machine, a row, one of ``others``, or a row ``+feature``.

    Devices stand beside a processor, ``native`` if none is named, with commas between: ``sm_80,sm_90``. Raises
    MachineError, naming the nearest, if there is none, and for two processors.
    """
    names = [one.strip() for one in name.split(",")] if "," in name else [name]
    rows = [host_machine() if one == NATIVE else machine_named(one, others) for one in names]
    devices = tuple(row for row in rows if row.is_device)
    processors = [row for row in rows if not row.is_device] or [host_machine()]
    if len(processors) > 1:
        first, second, *_ = (row.name for row in processors)
        raise MachineError(
            f"target '{name}' names two processors, '{first}' and '{second}'; a program has one", machine=name
        )
    return Target(processors[0], devices=devices)


def precision_named(name: str) -> Precision:
    """Return a precision by its name; raise GraftError if there is none of that name."""
    for known in PRECISIONS:
        if name == known:
            return known
    raise GraftError(f"unknown precision '{name}'; choose one of {', '.join(PRECISIONS)}", precision=name)


def tuned_database() -> Path | None:
    """Return the file of what tuning has found for this user: ``tuned.sqlite3`` in the cache directory, if any."""
    directory = cache_directory()
    return None if directory is None else directory / "tuned.sqlite3"


def host_target() -> Target:
    """Return this machine."""
    return Target(host_machine())
