"""LRU cache of the engines of a region with dynamic shapes: one specialised for each set of shapes, made on first use.

It needs neither onnx nor a compiler: it runs where a program is deployed, in several calls at a time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graft.errors import GraftError, PluginError
from graft.plugins.json_graph import JsonGraph
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.foreign import is_interrupt, kind_of, said

KEPT = 16
"""How many engines a region keeps."""
Engine = Callable[[Sequence[Any]], Sequence[np.ndarray]]
"""What `JsonBackend.load` returns: arrays of the run-time inputs in, of the outputs out, in the graph's order."""


class ShapedEngines:
    """An engine of any shapes: it hands a call to the one that ``make`` made of the graph at the shapes of the call.

    The least recently used of more than ``kept`` engines is dropped; a call that runs in it keeps it alive. Where all
    results are empty there is nothing to compute, and no engine is made.
    """

    def __init__(self, graph: JsonGraph, make: Callable[[JsonGraph], Engine], kept: int = KEPT) -> None:
        self.graph = graph
        self.make = make
        self.kept = kept
        self._engines: OrderedDict[tuple[int, ...], Engine] = OrderedDict()
        self._lock = threading.Lock()
        """Guards the engines; never held while one is made or runs."""
        self._making = threading.Lock()
        """So that calls that meet the same new shapes make one engine."""

    def __call__(self, inputs: Sequence[Any]) -> Sequence[np.ndarray]:
        """Compute the heads of the graph."""
        shapes = [array.shape for array in inputs]
        values = tuple(self.graph.values_at(shapes).values())
        engine = self._kept(values)
        if engine is None:
            with self._making:
                engine = self._kept(values) or self._made(values, shapes)
        return engine(inputs)

    def _kept(self, values: tuple[int, ...]) -> Engine | None:
        with self._lock:
            if values in self._engines:
                self._engines.move_to_end(values)
            return self._engines.get(values)

    def _made(self, values: tuple[int, ...], shapes: Sequence[Sequence[int]]) -> Engine:
        graph = self.graph.at(shapes)
        engine = nothing_of(graph) or self._asked(graph, values)
        with self._lock:
            self._engines[values] = engine
            if len(self._engines) > self.kept:
                self._engines.popitem(last=False)
        return engine

    def _asked(self, graph: JsonGraph, values: Sequence[int]) -> Engine:
        try:
            return self.make(graph)
        except BaseException as error:
            if is_interrupt(error):
                raise
            at = ", ".join(f"{one.name} = {value}" for one, value in zip(self.graph.symbols, values, strict=True))
            reason = error.message if isinstance(error, GraftError) else f"{kind_of(error)}: {said(error)}"
            raise PluginError(
                f"region '{graph.symbol}' cannot be loaded for {at}: {reason}; compile with dims in ranges that this "
                "backend takes, or on backends without it"
            ) from error


def nothing_of(graph: JsonGraph) -> Engine | None:
    """Return the engine of a graph whose results are all empty, None where there is something to compute."""
    empty: list[np.ndarray] = []
    for head in graph.heads:
        node = graph.nodes[head.node]
        shape = node.shape[head.index]
        numbers = [one for one in shape or () if isinstance(one, int)]
        if shape is None or len(numbers) < len(shape) or 0 not in numbers:
            return None
        empty.append(np.empty(numbers, numpy_dtype(node.dtype[head.index])))
    return lambda inputs: empty
