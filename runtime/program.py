"""A compiled program, ready to run."""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

import graft.runtime._native as _native
from graft.errors import ArtifactError, InputError
from graft.runtime.arguments import (
    ARRAYS,
    FEEDS,
    PATH,
    TEXT,
    TEXT_BY_TEXT,
    WHOLE,
    at_least,
    either,
    end_of,
    instance,
    optional,
    require,
    takes,
)
from graft.runtime.bound_program import BoundProgram
from graft.runtime.caches import Cache, caches_of
from graft.runtime.devices import call_text
from graft.runtime.foreign import shown
from graft.runtime.loaders import (
    LOADERS,
    NO_SECRETS,
    SECRETS,
    Given,
    Loader,
    LoaderRegistry,
    NativeLoader,
    Secrets,
)
from graft.runtime.objects import require_runtime
from graft.runtime.packed_values import pack, packed_of, unpack
from graft.runtime.procedure import ABI_VERSION, Procedure, ProgramDescription, procedures_to_json
from graft.runtime.system.displayed import CallTimes, Displayed
from graft.runtime.tensor_info import TensorInfo, did_you_mean, in_order

if TYPE_CHECKING:
    from graft.runtime.export.c_project import ExportedProject, Profile
    from graft.runtime.export.library import ExportedLibrary


class Program(Displayed):
    """A program that runs natively; threads may call it at the same time.

    Tensors are NumPy arrays or anything with ``__dlpack__``, and are not copied if they are contiguous. Outputs are
    NumPy arrays. Sequences are lists, optionals without a value None, strings arrays of objects.
    """

    def __init__(self, native: Any, description: ProgramDescription) -> None:
        self._native = native
        self.description = description
        """What the program was made of."""
        self._packed = {which: packed_of(description.metadata, which) for which in ("inputs", "outputs")}
        self.inputs = _tensor_infos(native.inputs, self._packed["inputs"])
        self.outputs = _tensor_infos(native.outputs, self._packed["outputs"])
        self._is_packed = any(self._packed.values())
        self._is_plain = not self._is_packed
        """Whether a call may go straight to the native program."""

    @classmethod
    @takes(
        description=instance(ProgramDescription, wanted="a ProgramDescription"), threads=optional(WHOLE),
        loaders=LOADERS, secrets=SECRETS,
    )  # fmt: skip
    def from_description(
        cls,
        description: ProgramDescription,
        threads: int | None = None,
        loaders: Iterable[Given] = (),
        secrets: Secrets = NO_SECRETS,
    ) -> Program:
        """Load a program in this process; ``threads`` is None for as many as the process may use.

        ``loaders`` and ``secrets`` are as for `graft.runtime.load`. Raises ArtifactError if the description is not
        valid, if a loader is missing, or if a module cannot be loaded.
        """
        count = check_threads(threads)
        require_runtime(description)
        registry = LoaderRegistry(loaders, secrets)
        modules, found = registry.resolve_all(description.modules)
        native = native_program(replace(description, modules=modules), found, count)
        return cls(native, description)

    def __call__(
        self,
        *arrays: Any,
        outputs_on: str | None = None,
        deadline: float | None = None,
        cancel: _native.CancelToken | None = None,
        **named: Any,
    ) -> Any:
        """Run the program on arrays in the order of `inputs`, or by name.

        Returns one array where the program has one output, and a tuple in the order of `outputs` otherwise. With a
        tensor on a device among the inputs, all outputs are `DeviceTensor` objects there, else NumPy arrays;
        ``outputs_on`` is "cpu" or the name of one of `devices` for where they are to be instead. The run ends early
        after ``deadline`` seconds, and when another thread cancels the token: before the next call of a compiled
        function, iteration of control flow or task of a parallel loop. Raises InputError for wrong names, numbers,
        types, shapes or devices, RunError if a compiled function fails, and its subclasses DeadlineError and
        CancelledError for a run that ended early.
        """
        if named:
            arrays = in_order(self.inputs, arrays, named)
        if self._is_plain and outputs_on is None and deadline is None and cancel is None:
            return self._native(*arrays)
        return self._run_on(arrays, outputs_on, end_of("Program", deadline, cancel), cancel)

    def _run_on(self, arrays: tuple[Any, ...], outputs_on: object, end: int, cancel: _native.CancelToken | None) -> Any:
        if outputs_on is None:
            if self._is_packed:
                return self._call_packed(arrays, end, cancel)
            return self._native.run_on(arrays, -1, end, cancel)
        places = ("cpu", *self.devices)
        if not isinstance(outputs_on, str) or outputs_on not in places:
            names = " or ".join(f"'{name}'" for name in places)
            raise InputError(
                f"outputs_on is {shown(outputs_on)}; the program computes on {names}", outputs_on=outputs_on
            )
        if outputs_on == "cpu" and self._is_packed:
            return self._call_packed(arrays, end, cancel)
        if self._is_packed:
            raise InputError(
                "outputs that are strings, sequences or optionals are in main memory; leave outputs_on out",
                outputs_on=outputs_on,
            )
        return self._native.run_on(arrays, places.index(outputs_on), end, cancel)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that the program computes on, besides the processor."""
        return tuple(device.name for device in self.description.devices)

    def _call_packed(self, values: tuple[Any, ...], end: int, cancel: _native.CancelToken | None) -> Any:
        """Run the program on values of which some are no tensors of numbers."""
        kinds = [one.name in self._packed["inputs"] for one in self.inputs]
        given = [pack(value) if kind else value for value, kind in zip(values, kinds, strict=False)]
        results = self._native.run_on((*given, *values[len(kinds) :]), -1, end, cancel)
        found = (results,) if len(self.outputs) == 1 else results
        whole = tuple(
            unpack(result) if one.name in self._packed["outputs"] else result
            for one, result in zip(self.outputs, found, strict=True)
        )
        return whole[0] if len(whole) == 1 else whole

    def _places(self, into: Mapping[str, np.ndarray], arrays: Sequence[Any]) -> tuple[np.ndarray | None, ...]:
        """Return the array for each output, None where there is none."""
        names = {output.name: None for output in self.outputs}
        spans = sorted(_span(one) for one in arrays if isinstance(one, np.ndarray) and one.size)
        ends = [*accumulate((end for _, end in spans), max)]  # of each span, and of those that begin before it
        for name, place in into.items():
            if name not in names:
                raise InputError(f"the program has no output '{name}'{did_you_mean(name, [*names])}")
            begin, end = _span(place) if place.size else (0, 0)
            before = bisect_left(spans, (end, 0))
            if before and ends[before - 1] > begin:
                raise InputError(f"output '{name}' would be written over an input; give another array")
        return tuple(into.get(name) for name in names)

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs_on: str | None = None,
        *,
        into: Mapping[str, np.ndarray] | None = None,
        deadline: float | None = None,
        cancel: _native.CancelToken | None = None,
    ) -> dict[str, Any]:
        """Run the program on arrays by name; return the outputs by name. Options and errors are those of a call.

        ``into`` are arrays of main memory that outputs are written to, by name; none may be an input of the same call.
        All outputs are in main memory then, so ``outputs_on`` may be "cpu" alone.
        """
        require("Program.run", "inputs", inputs, ARRAYS)
        arrays = tuple(in_order(self.inputs, (), inputs))
        if into is not None:
            if outputs_on not in (None, "cpu"):
                raise InputError(
                    f"outputs_on is {shown(outputs_on)}, and `into` has arrays of main memory; leave one of them out",
                    outputs_on=outputs_on,
                )
            buffers = self._places(into, arrays)
            results = self._native.run_into(arrays, buffers, end_of("Program.run", deadline, cancel), cancel)
            if isinstance(results, int):
                raise InputError(f"an array of `into` has too few rows; {results} are needed")
        elif self._is_plain and outputs_on is None and deadline is None and cancel is None:
            results = self._native(*arrays)
        else:
            results = self._run_on(arrays, outputs_on, end_of("Program.run", deadline, cancel), cancel)
        if len(self.outputs) == 1:
            results = (results,)
        return {output.name: result for output, result in zip(self.outputs, results, strict=True)}

    @property
    def caches(self) -> tuple[Cache, ...]:
        """The caches that the program grows: inputs that are outputs with more rows behind them."""
        return caches_of(self.description.procedures[0], self.description.metadata)

    @takes(pairs=optional(TEXT_BY_TEXT), capacity=optional(at_least(0)))
    def bind(self, pairs: Mapping[str, str] | None = None, capacity: int | None = None) -> BoundProgram:
        """Return the program with state: outputs that it keeps, and gets back as inputs of the next call.

        ``pairs`` are inputs with the outputs that become their next values, of the same type and rank; None for those
        of `caches`. What grows begins empty, any other state with zeros; their other extents are those that the inputs
        of the first call tell. ``capacity`` is the most rows that a cache may have; None lets its memory double when it
        is full. A call copies no row that it had before, where `caches` do not say why. Raises InputError for names
        that do not exist, and for pairs that do not fit.
        """
        return BoundProgram(self._native, self.description, self.inputs, self.outputs, pairs, capacity)

    def profile(self, *arrays: Any) -> CallTimes:
        """Run once and return, for each call of the procedure that ran, its nodes, its function and its nanoseconds."""
        procedure, times = self.timed(*arrays)
        return CallTimes(
            (call.origin, call.function or call_text(call, procedure, self.devices), nanoseconds)
            for call, nanoseconds in zip(procedure.calls, times, strict=True)
        )

    def timed(self, *arrays: Any) -> tuple[Procedure, list[int]]:
        """Run once and return the procedure that ran, main or a variant of it, and the nanoseconds of its calls."""
        number, times = self._native.profile(*arrays)
        return self.description.procedures[number], list(times)

    @takes(path=PATH)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to an artifact, which `graft.runtime.load` reads; raise ArtifactError if that fails."""
        from graft.runtime.artifact import save

        save(self.description, path)

    @takes(path=PATH, name=optional(TEXT))
    def export_library(self, path: str | os.PathLike[str], *, name: str | None = None) -> ExportedLibrary:
        """Write the program, its weights and the runtime to one shared library, which C and C++ programs link or open.

        Its functions are called ``graft_model_<name>_load`` and so on (graft/model.h), ``name`` is the file's if left
        out; `graft.runtime.load` opens it, too. Needs a C compiler: ``CC``, else cc, gcc or clang. Raises CompileError
        and ArtifactError, and leaves what was at ``path`` then.
        """
        from graft.runtime.export.library import export_library

        return export_library(self.description, path, name=name)

    @takes(path=PATH, inputs=optional(FEEDS), name=optional(TEXT),
           profile=either("hosted", "bare-metal", "arduino", "zephyr"),
           ram=optional(at_least(0)), threads=at_least(1), flash=optional(at_least(0)), stack=optional(at_least(0)),
           compiler=TEXT)  # fmt: skip
    def export_c_project(
        self,
        path: str | os.PathLike[str],
        inputs: Mapping[str, np.ndarray] | None = None,
        *,
        name: str | None = None,
        profile: Profile = "hosted",
        ram: int | None = None,
        threads: int = 1,
        flash: int | None = None,
        stack: int | None = None,
        compiler: str = "",
    ) -> ExportedProject:
        """Write the program to a folder as C that needs a C11 compiler and nothing else; `docs/deploy.md` shows it.

        Every module must have C source, as those of the backend ``c_source`` do. ``inputs`` are recorded for the
        project's check, with what the program gives for them; None for seeded random ones. Profile ``bare-metal`` has
        its weights in C arrays and prints nothing, ``arduino`` and ``zephyr`` are that as a folder these take.
        ``ram`` is how many bytes the arena may have; ``threads``
        (POSIX's, in profile ``hosted``) share the loops of kernels. ``flash`` is how many bytes weights and code may
        have, and ``stack`` how many the stack, as ``compiler`` makes them (a command with flags, "" for the usual one
        of the target). Raises ArtifactError, and leaves what was at ``path`` then.
        """
        from graft.runtime.export.c_check import Recorded
        from graft.runtime.export.c_project import export_c_project
        from graft.runtime.inputs import inputs_of

        recorded = Recorded.of(self, inputs_of(self, (), 0) if inputs is None else inputs)
        return export_c_project(
            self.description, path, recorded, name=name, profile=profile, ram=ram, threads=threads, flash=flash,
            stack=stack, compiler=compiler,
        )  # fmt: skip

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
        ``alone`` are the runs whose loops stayed with their caller: they take less time so, or it was tried.
        """
        return dict(self._native.pool_counts)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{one.name}: {one}" for one in self.inputs)
        outputs = ", ".join(f"{one.name}: {one}" for one in self.outputs)
        return f"<Program ({inputs}) -> ({outputs})>"


def _libraries_of(
    description: ProgramDescription, loaders: Iterable[Loader | None]
) -> tuple[tuple[str, str | os.PathLike[str], int], ...]:
    """Return the library of each device that a loader brings; of others the runtime says who has them."""
    libraries = {loader.device: loader.library for loader in loaders if isinstance(loader, NativeLoader)}
    return tuple((one.name, libraries[one.name], 0) for one in description.devices if one.name in libraries)


def _tensor_infos(rows: Iterable[tuple[Any, ...]], packed: Mapping[str, str]) -> tuple[TensorInfo, ...]:
    """Return what the native program tells of inputs or outputs, packed ones by their own types."""
    infos = (TensorInfo(*row) for row in rows)
    return tuple(TensorInfo(one.name, packed[one.name], None) if one.name in packed else one for one in infos)


def native_program(
    description: ProgramDescription, loaders: Mapping[str, Loader | None], threads: int, *, shared: bool = False
) -> _native.Program:
    """Return the native program, with a loader for each kind of module that the runtime does not load itself.

    ``threads`` is 0 for all; with ``shared``, its arenas are memory that may be shared with other processes. Raises as
    `Program.from_description` does.
    """
    return _native.Program(
        manifest_of(description),
        [(module.name, module.kind, module.data, dict(module.constants)) for module in description.modules],
        dict(description.constants),
        [
            (kind, loader.library if isinstance(loader, NativeLoader) else loader)
            for kind, loader in loaders.items()
            if loader is not None
        ],
        threads,
        description.artifact,
        shared,
        _libraries_of(description, loaders.values()),
    )


def manifest_of(description: ProgramDescription) -> bytes:
    """Return the manifest that the native runtime reads, for a program whose modules and constants are in memory.

    Raise ArtifactError for an attribute that JSON cannot hold.
    """
    data = {
        "abi": ABI_VERSION,
        **procedures_to_json(description, schedules=False),
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


def _span(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses at which the elements of an array, of which there are some, begin and end."""
    begin = int(array.__array_interface__["data"][0])
    if array.flags.c_contiguous:
        return begin, begin + array.nbytes
    reaches = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    return begin + sum(min(one, 0) for one in reaches), begin + sum(max(one, 0) for one in reaches) + array.itemsize
