"""A program that was compiled for a device that is not here: it can be saved and exported, and says so when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from graft.errors import ArtifactError, GraftError
from graft.runtime.extents import Extent
from graft.runtime.procedure import ProgramDescription
from graft.runtime.program import Program


class UnloadedProgram(Program):
    """A program without its native part; what needs that raises an ArtifactError, which says what is missing."""

    def __init__(self, description: ProgramDescription, error: GraftError) -> None:
        super().__init__(_Absent(description, error), description)


class _Absent:
    """What stands in the place of the native program."""

    def __init__(self, description: ProgramDescription, error: GraftError) -> None:
        entry = description.procedures[0]
        self.inputs, self.outputs = (
            [(one.name, one.dtype, _shown(one.shape)) for one in (entry.tensors[number] for number in numbers)]
            for numbers in (entry.inputs, entry.outputs)
        )
        self.error = error

    def __call__(self, *arrays: Any) -> NoReturn:
        raise ArtifactError(
            f"the program is compiled, and cannot run here: {self.error.message}; save it, and load it where the "
            "device is"
        ) from self.error

    def __getattr__(self, name: str) -> Any:
        self()


def _shown(shape: Sequence[Extent] | None) -> tuple[int | str, ...] | None:
    return None if shape is None else tuple(one if isinstance(one, int) else str(one) for one in shape)
