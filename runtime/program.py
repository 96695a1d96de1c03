"""A compiled program, ready to run."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

import graft.runtime._native as _native
from graft.errors import ArtifactError, InputError
from graft.runtime.arguments import ARRAYS, PATH, WHOLE, instance, optional, require, takes
from graft.runtime.loaders import LOADERS, Loader, LoaderRegistry, NativeLoader
from graft.runtime.procedure import ABI_VERSION, Procedure, ProgramDescription, procedures_to_json


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The name, element type and shape of an input or output.

    An extent that runs choose or find out is a text, as in ``("batch", "2 * seq")``; the shape is None where not even
    the rank is known before a run.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as numbers; None where it has others or is unknown."""
        numbers = tuple(extent for extent in self.shape or () if isinstance(extent, int))
        return numbers if self.shape is not None and len(numbers) == len(self.shape) else None

    def __str__(self) -> str:
        shape = "" if self.shape is None else f"[{','.join(map(str, self.shape))}]"
        return f"{self.dtype}{shape}"


class Program:
    """A program that runs natively; threads may call it at the same time.

    Tensors are NumPy arrays or anything with ``__dlpack__``, and are not copied if they are contiguous. Outputs are
    NumPy arrays.
    """

    def __init__(self, native: Any, description: ProgramDescription) -> None:
        self._native = native
        self.description = description
        """What the program was made of."""
        self.inputs = tuple(TensorInfo(*row) for row in native.inputs)
        self.outputs = tuple(TensorInfo(*row) for row in native.outputs)

    @classmethod
    @takes(
        description=instance(ProgramDescription, wanted="a ProgramDescription"), threads=optional(WHOLE),
        loaders=LOADERS,
    )  # fmt: skip
    def from_description(
        cls, description: ProgramDescription, threads: int | None = None, loaders: Iterable[Loader] = ()
    ) -> Program:
        """Load a program in this process; ``threads`` is None for as many as the process may use.

        ``loaders`` come before those of installed plugins. Raises ArtifactError if the description is not valid, if a
        loader is missing, or if a module cannot be loaded.
        """
        count = check_threads(threads)
        registry = LoaderRegistry(loaders)
        found = {
            module.kind: registry.resolve(module.kind, module.plugin, module.install) for module in description.modules
        }
        native = _native.Program(
            manifest_of(description),
            [(module.name, module.kind, module.data, dict(module.constants)) for module in description.modules],
            dict(description.constants),
            [
                (kind, loader.library if isinstance(loader, NativeLoader) else loader)
                for kind, loader in found.items()
                if loader is not None
            ],
            count,
            description.artifact,
        )
        return cls(native, description)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the program on arrays in the order of `inputs`, or by name.

        Returns one array where the program has one output, and a tuple in the order of `outputs` otherwise. Raises
        InputError for wrong names, numbers, types or shapes, and RunError if a compiled function fails.
        """
        if named:
            arrays = self._ordered(arrays, named)
        return self._native(*arrays)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run the program on arrays by name; return the outputs by name. Raises as a call does."""
        require("Program.run", "inputs", inputs, ARRAYS)
        results = self._native(*self._ordered((), inputs))
        if len(self.outputs) == 1:
            results = (results,)
        return {output.name: result for output, result in zip(self.outputs, results, strict=True)}

    def profile(self, *arrays: Any) -> list[tuple[tuple[str, ...], str, int]]:
        """Run once and return, for each call of the procedure that ran, its nodes, its function and its nanoseconds."""
        procedure, times = self.timed(*arrays)
        return [
            (call.origin, call.function or call.kind, nanoseconds)
            for call, nanoseconds in zip(procedure.calls, times, strict=True)
        ]

    def timed(self, *arrays: Any) -> tuple[Procedure, list[int]]:
        """Run once and return the procedure that ran, main or a variant of it, and the nanoseconds of its calls."""
        number, times = self._native.profile(*arrays)
        return self.description.procedures[number], list(times)

    @takes(path=PATH)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to an artifact, which `graft.runtime.load` reads; raise ArtifactError if that fails."""
        from graft.runtime.artifact import save

        save(self.description, path)

    @property
    def arena_bytes(self) -> int:
        """The bytes of intermediate tensors, as planned, over all procedures."""
        return int(self._native.arena_bytes)

    @property
    def arena_bound(self) -> int:
        """The lower bound of `arena_bytes`: the largest sum of bytes live at one time."""
        return int(self._native.arena_bound)

    @property
    def threads(self) -> int:
        """The number of threads that the program uses."""
        return int(self._native.threads)

    @property
    def pool_counts(self) -> dict[str, int]:
        """What the threads did so far, for those who measure: all zero with one thread.

        ``jobs`` are the parallel loops that they shared, ``helped`` the parts that others than the caller ran,
        ``parted`` those that had to leave their caller's processor, ``lent`` those that lost theirs and got another.
        """
        return dict(self._native.pool_counts)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{one.name}: {one}" for one in self.inputs)
        outputs = ", ".join(f"{one.name}: {one}" for one in self.outputs)
        return f"<Program ({inputs}) -> ({outputs})>"

    def _ordered(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arrays in the order of the inputs; the positional ones stand for the first inputs."""
        names = [one.name for one in self.inputs]
        rest = names[len(arrays) :]
        for name in named:
            if name not in rest:
                self._fail_name(name, names)
        missing = [name for name in rest if name not in named]
        if missing:
            raise InputError(
                f"missing input{'s' * (len(missing) > 1)} {_quoted(missing)}; the program takes {_quoted(names)}",
                missing=tuple(missing),
            )
        return (*arrays, *(named[name] for name in rest))

    def _fail_name(self, name: str, names: list[str]) -> NoReturn:
        if name in names:
            raise InputError(f"input '{name}' is given twice: by position and by name", input=name)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise InputError(f"no input '{name}'; the program takes {_quoted(names) or 'none'}{hint}", input=name)


def manifest_of(description: ProgramDescription) -> bytes:
    """Return the manifest that the native runtime reads, for a program whose modules and constants are in memory."""
    data = {
        "abi": ABI_VERSION,
        **procedures_to_json(description),
        "modules": [
            {
                "name": module.name,
                "kind": module.kind,
                "functions": list(module.functions),
                "plugin": module.plugin,
                "install": module.install,
            }
            for module in description.modules
        ],
        "targets": [dict(target) for target in description.targets],
    }
    try:
        return json.dumps(data, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"the program has an attribute that JSON cannot hold: {error}") from error


def check_threads(threads: int | None) -> int:
    """Return the number as the native runtime takes it, where 0 means all; raise InputError if it is none."""
    if threads is None:
        return 0
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}", threads=threads)
    return threads


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
