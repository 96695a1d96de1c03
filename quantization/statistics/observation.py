"""Observation: a float model is run on data, and what passes through chosen values is gathered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx_ir as ir

from graft.compiler.api import compile
from graft.compiler.request import Backends, plugins
from graft.quantization.statistics.data import Batch, Batches, Feeds, called
from graft.quantization.statistics.kept import Gathering, Kept

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager
    from graft.runtime.program import Program

Progress = Callable[[int, int | None], None]
"""Called with the number of batches, or of tried models, that are done, and that of all, None if it is not known."""


class Observer(Gathering, Protocol):
    """What gathers facts of one value."""

    def add(self, array: np.ndarray) -> None:
        """Take in the value of one batch."""


class Largest:
    """The largest size of an element in each channel, the axis ``axis``."""

    kept = ("sizes",)

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self.sizes: np.ndarray | None = None

    def add(self, array: np.ndarray) -> None:
        """Take in the value of one batch."""
        found = np.abs(by_channel(array, self._axis)).max(axis=1)
        self.sizes = found if self.sizes is None else np.maximum(found, self.sizes)


class Mean:
    """The mean of each channel, the axis ``axis``."""

    kept = ("_sums", "_count")

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._sums: np.ndarray | None = None
        self._count = 0

    def add(self, array: np.ndarray) -> None:
        """Take in the value of one batch."""
        rows = by_channel(array, self._axis)
        sums = rows.sum(axis=1, dtype=np.float64)
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += rows.shape[1]

    @property
    def means(self) -> np.ndarray:
        """The means, of float64."""
        assert self._sums is not None
        return self._sums / self._count


def by_channel(array: np.ndarray, axis: int) -> np.ndarray:
    """Return an array with its channels as rows."""
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


@dataclass(frozen=True, slots=True)
class Running:
    """How models are run: by the built-in compiler or ``backends``, with so many threads and the plugins of a manager.

    ``resume`` is the folder that keeps what was gathered.
    """

    threads: int | None = None
    manager: PluginManager | None = None
    resume: str | os.PathLike[str] | None = None
    backends: Backends = None

    def runner(self, model: ir.Model, names: Iterable[str] = ()) -> Callable[[Feeds], Feeds]:
        """Return what runs a model and gives the values of these names, its inputs and its outputs."""
        observed = model.clone()
        graph = observed.graph
        known = {value.name: value for node in graph for value in node.outputs}
        outputs = {value.name for value in graph.outputs}
        for name in dict.fromkeys(names):
            if name in known and name not in outputs:
                graph.outputs.append(known[name])
        program = self.program(observed)
        return lambda feeds: {**feeds, **program.run(feeds)}

    def program(self, model: ir.Model) -> Program:
        """Return a model compiled."""
        manager = self.manager or plugins()
        return compile(model, threads=self.threads, manager=manager, backends=self.backends or manager.fallbacks())

    def observe(
        self,
        model: ir.Model,
        observers: Mapping[str, Sequence[Observer]],
        data: Iterable[Batch],
        progress: Progress | None = None,
    ) -> None:
        """Run a model on all data, and show each observer the values of its name, inputs of the model included.

        What a file of the folder ``resume`` has gathered before is not gathered again.
        """
        kept = None if self.resume is None else Kept(self.resume, model, observers)
        run, complete = None, False
        total = data.total if isinstance(data, Batches) else None
        try:
            for number, batch in enumerate(data, 1):
                if kept is None or not kept.has(batch):
                    run = run or self.runner(model, observers)
                    values = run(batch.feeds)
                    with nullcontext() if kept is None else kept.gathering():
                        for name, wanted in observers.items():
                            for observer in wanted:
                                observer.add(values[name])
                if progress is not None:
                    called("progress function", progress, number, total)
            complete = True
        finally:
            if kept is not None:
                kept.close(complete=complete)
