"""A program with state: outputs that it keeps and gets back as inputs, growing caches in one memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graft.errors import InputError
from graft.runtime import _native
from graft.runtime.arguments import end_of
from graft.runtime.caches import caches_of
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.extents import Extent, Symbol, evaluate, symbols_of
from graft.runtime.procedure import ProgramDescription
from graft.runtime.tensor_info import TensorInfo, did_you_mean, in_order, quoted

FIRST_ROWS = 64
"""The rows that a cache without a given capacity has room for at first."""


@dataclass(slots=True)
class _State:
    """An input whose next value is an output: both by number."""

    input: int
    output: int
    shape: tuple[Extent, ...]
    """That of the input."""
    grows: int | None
    """The axis along which the output may be longer than the input."""
    appended: bool
    """Whether the output lies in the memory of the input, which is a buffer then."""
    value: np.ndarray | None = None
    """None before the first call."""
    buffer: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """The rows that it has along the axis that grows."""
        return 0 if self.value is None or self.grows is None else self.value.shape[self.grows]


class BoundProgram:
    """A program that keeps some of its outputs as its next inputs (`Program.bind`).

    It is called with the other inputs, by position or by name, and returns the other outputs. What it keeps changes
    when a call succeeds; a call that fails leaves all as it was. One thread at a time may call a bound program;
    programs bound from the same one are independent.
    """

    def __init__(
        self,
        native: Any,
        description: ProgramDescription,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        pairs: Mapping[str, str] | None,
        capacity: int | None,
    ) -> None:
        self._native = native
        self._inputs, self._outputs = inputs, outputs
        self._capacity = capacity
        self._states = _states(description, inputs, outputs, pairs)
        if capacity is not None and all(state.grows is None for state in self._states):
            raise InputError("nothing that is bound grows, so it has no capacity; leave the capacity out")
        kept = {state.input for state in self._states}
        self._free = [number for number in range(len(inputs)) if number not in kept]
        entry = description.procedures[0]
        self._shapes = [entry.tensors[entry.inputs[number]].shape for number in self._free]
        kept = {state.output for state in self._states}
        self._given = [number for number in range(len(outputs)) if number not in kept]
        self.inputs = tuple(inputs[number] for number in self._free)
        """What a call takes."""
        self.outputs = tuple(outputs[number] for number in self._given)
        """What a call returns."""

    def __call__(
        self,
        *arrays: Any,
        deadline: float | None = None,
        cancel: _native.CancelToken | None = None,
        **named: Any,
    ) -> Any:
        """Run the program and keep its state.

        Returns one array where one output is not kept, and a tuple in the order of `outputs` otherwise. ``deadline``
        and ``cancel`` are those of `Program`. Raises as the program does, and InputError for a cache that would be
        longer than its capacity.
        """
        results = self._run(arrays, named, end_of("BoundProgram", deadline, cancel), cancel)
        return results[0] if len(results) == 1 else tuple(results)

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        deadline: float | None = None,
        cancel: _native.CancelToken | None = None,
    ) -> dict[str, np.ndarray]:
        """Run the program on arrays by name; return the outputs that are not kept by name. Raises as a call does."""
        results = self._run((), inputs, end_of("BoundProgram.run", deadline, cancel), cancel)
        return {one.name: result for one, result in zip(self.outputs, results, strict=True)}

    def reset(self) -> None:
        """Forget all state: the next call begins anew, its buffers in place."""
        for state in self._states:
            state.value = None

    @property
    def length(self) -> int:
        """The rows that the longest of the caches has; 0 before the first call, and where nothing grows."""
        return max((state.rows for state in self._states), default=0)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """What the next call gets, by the names of inputs, as read-only views; empty before the first call."""
        found = {}
        for state in self._states:
            if state.value is not None:
                view = found[self._inputs[state.input].name] = state.value.view()
                view.flags.writeable = False
        return found

    def __repr__(self) -> str:
        kept = ", ".join(
            f"{self._outputs[state.output].name} -> {self._inputs[state.input].name}" for state in self._states
        )
        return f"<BoundProgram of {len(self.inputs)} inputs, length {self.length} ({kept})>"

    # ---- Calls ----

    def _run(
        self, arrays: tuple[Any, ...], named: Mapping[str, Any], end: int, cancel: _native.CancelToken | None
    ) -> list[np.ndarray]:
        given = in_order(self.inputs, arrays, named)
        if len(given) != len(self._free):
            names = quoted([one.name for one in self.inputs])
            raise InputError(f"the bound program takes {len(self._free)} inputs ({names}), got {len(given)}")
        values = [self._value(state, given) for state in self._states]
        inputs: list[Any] = [None] * len(self._inputs)
        for number, array in zip(self._free, given, strict=True):
            inputs[number] = array
        results = self._results(inputs, values, end, cancel)
        for state in self._states:
            self._check_capacity(state, results[state.output].shape)
        for state in self._states:
            state.value = results[state.output]
        return [results[number] for number in self._given]

    def _results(
        self, inputs: list[Any], values: list[np.ndarray], end: int, cancel: _native.CancelToken | None
    ) -> Sequence[np.ndarray]:
        """Run the program; buffers that are too short are replaced by longer ones."""
        while True:
            buffers: list[np.ndarray | None] = [None] * len(self._outputs)
            for place, state in enumerate(self._states):
                if state.appended:
                    values[place] = self._in_buffer(state, values[place])
                    buffers[state.output] = state.buffer
                inputs[state.input] = values[place]
            results = self._native.run_into(tuple(inputs), tuple(buffers), end, cancel)
            if not isinstance(results, int):
                return results if isinstance(results, tuple) else (results,)
            self._lengthen(results)

    def _in_buffer(self, state: _State, value: np.ndarray) -> np.ndarray:
        """Return a value as the first rows of its state's buffer, which is made where there is none for it."""
        axis = state.grows
        assert axis is not None
        rest = (*value.shape[:axis], *value.shape[axis + 1 :])
        buffer = state.buffer
        if buffer is None or (*buffer.shape[:axis], *buffer.shape[axis + 1 :]) != rest:
            rows = FIRST_ROWS if self._capacity is None else self._capacity
            buffer = state.buffer = np.empty((*rest[:axis], rows, *rest[axis:]), value.dtype)
        return _first(buffer, axis, value.shape[axis])

    def _lengthen(self, rows: int) -> None:
        """Give every buffer room for so many rows, those that it has included."""
        for state in self._states:
            axis, buffer = state.grows, state.buffer
            if not state.appended or buffer is None or axis is None or buffer.shape[axis] >= rows:
                continue
            if self._capacity is not None:
                self._fail_capacity(state, rows)
            length = max(rows, 2 * buffer.shape[axis])
            longer = np.empty((*buffer.shape[:axis], length, *buffer.shape[axis + 1 :]), buffer.dtype)
            if state.value is not None:
                state.value = _first(longer, axis, state.rows)
                state.value[...] = _first(buffer, axis, state.rows)
            state.buffer = longer

    def _check_capacity(self, state: _State, shape: tuple[int, ...]) -> None:
        if self._capacity is not None and state.grows is not None and shape[state.grows] > self._capacity:
            self._fail_capacity(state, shape[state.grows])

    def _fail_capacity(self, state: _State, rows: int) -> None:
        name = self._inputs[state.input].name
        raise InputError(
            f"cache '{name}' would have {rows} rows, but its capacity is {self._capacity}; bind the program with a "
            "larger one, or reset it",
            input=name, rows=rows, capacity=self._capacity,
        )  # fmt: skip

    # ---- The first call ----

    def _value(self, state: _State, given: Sequence[Any]) -> np.ndarray:
        """The value that the next call gets: nothing, or zeros, in the first one."""
        if state.value is not None:
            return state.value
        info, values = self._inputs[state.input], self._bound_symbols(given)
        if state.grows is not None:
            values = {**values, str(state.shape[state.grows]): 0}
        for axis, extent in enumerate(state.shape):
            for symbol in symbols_of(extent):
                if symbol.name not in values:
                    raise InputError(
                        f"axis {axis} of '{info.name}' is {extent}, and no other input tells '{symbol.name}' in the "
                        "first call; compile the model with a number for it",
                        input=info.name, dimension=symbol.name,
                    )  # fmt: skip
        return np.zeros(tuple(evaluate(extent, values) for extent in state.shape), numpy_dtype(info.dtype))

    def _bound_symbols(self, given: Sequence[Any]) -> dict[str, int]:
        """The values of symbols that arrays have, by the axes that are one alone."""
        values: dict[str, int] = {}
        for shape, array in zip(self._shapes, given, strict=True):
            for extent, size in zip(shape or (), getattr(array, "shape", ()), strict=False):
                if isinstance(extent, Symbol):
                    values.setdefault(extent.name, int(size))
        return values


def _first(buffer: np.ndarray, axis: int, rows: int) -> np.ndarray:
    return buffer[(slice(None),) * axis + (slice(rows),)]


def _states(
    description: ProgramDescription,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    pairs: Mapping[str, str] | None,
) -> list[_State]:
    """The states of pairs of names, which have to be inputs with outputs that fit them."""
    found = {cache.input: cache for cache in caches_of(description.procedures[0], description.metadata)}
    if pairs is None:
        pairs = {cache.input: cache.output for cache in found.values()}
        if not pairs:
            raise InputError(
                "the program grows no cache; name the inputs and outputs to bind, as in bind({'state': 'next_state'})"
            )
    sources, results = [one.name for one in inputs], [one.name for one in outputs]
    states = []
    for source, result in pairs.items():
        for name, names, what in ((source, sources, "input"), (result, results, "output")):
            if name not in names:
                hint = did_you_mean(name, names)
                raise InputError(f"no {what} '{name}'; there is {quoted(names) or 'none'}{hint}", name=name)
        if list(pairs.values()).count(result) > 1:
            raise InputError(f"output '{result}' is bound to two inputs", output=result)
        cache = found.get(source)
        is_appended = cache is not None and cache.output == result and not cache.copied
        states.append(_state(description, sources.index(source), results.index(result), is_appended))
    return states


def _state(description: ProgramDescription, source: int, result: int, is_appended: bool) -> _State:
    entry = description.procedures[0]
    taken, made = entry.tensors[entry.inputs[source]], entry.tensors[entry.outputs[result]]
    where = f"output '{made.name}' cannot be the next input '{taken.name}'"
    if taken.dtype != made.dtype:
        raise InputError(f"{where}: it is {made.dtype}, the input {taken.dtype}", input=taken.name, output=made.name)
    if taken.shape is None or made.shape is None or len(taken.shape) != len(made.shape):
        raise InputError(f"{where}: their ranks differ or are unknown", input=taken.name, output=made.name)
    grows = None
    for axis, (own, other) in enumerate(zip(taken.shape, made.shape, strict=True)):
        if own == other:
            continue
        if grows is not None or not isinstance(own, Symbol):
            raise InputError(
                f"{where}: axis {axis} is {other}, where the input has {own}", input=taken.name, output=made.name
            )
        grows = axis
    return _State(source, result, taken.shape, grows, is_appended)
