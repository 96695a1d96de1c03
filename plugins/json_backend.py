"""The backend that serialises a region to a JSON graph and lets the vendor's engine run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graft.errors import PluginError
from graft.plugins.backend import Backend, ShapeSupport
from graft.plugins.json_graph import JsonGraph
from graft.plugins.options.default_object import OfDefaults
from graft.plugins.options.values import saved
from graft.plugins.shaped_engines import Engine, ShapedEngines
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.core.machine.target import CompileOptions
    from graft.partition.region import Region
    from graft.runtime.loaders import Loader, PythonLoader


class JsonBackend(Backend):
    """A backend with a library behind it: say what it supports, and how to load a graph; the rest is done.

    A region becomes a module of kind ``json:<name>``: a `JsonGraph` and its constants. At load the graph and the
    constants go to `load` once; the engine that it returns is called with the run-time inputs.

    Where the shapes of a region vary, `load` gets graphs of numbers all the same (``shapes = "run-time"``): one for
    each new shape that a call brings, with the same constants. The last 16 engines are kept, the least recently used
    goes first; two calls may run in one engine, or in two, at a time. Nothing is asked of an engine where all results
    are empty. With ``shapes = "symbolic"``, `load` gets the graph with its symbols, once, and the engine takes any.
    """

    shapes: ClassVar[ShapeSupport] = "run-time"

    def compile(self, region: Region, options: CompileOptions) -> Module:
        """Return the region as a JSON graph; raise CompileError for what such a graph cannot hold."""
        from graft.plugins.json_codegen import serialize
        from graft.plugins.layouts.channels_last import with_channels_last

        graph, constants = with_channels_last(*serialize(region), self.channels_last)
        return Module(region.name, self.kind(), (region.name,), graph.to_json(), constants, install=self.install)

    def load(self, graph: JsonGraph, constants: Mapping[str, np.ndarray]) -> Engine:
        """Build the engine of a region, once, where the program is loaded.

        ``self.options`` are those of the compilation. ``constants`` holds read-only arrays by the names of
        ``graph.constants``. The engine takes the arrays of
        ``graph.inputs``, read-only, in order, and returns one array per head of the dtype that the graph states.

        A subclass defines it; this one raises TypeError.
        """
        raise TypeError(f"backend '{self.name}' does not define load(graph, constants)")

    @classmethod
    def kind(cls) -> str:
        """Return the kind of this backend's modules."""
        return f"json:{cls.name}"

    @OfDefaults
    def module_loaders(self) -> list[Loader]:
        """Return the loader of this backend's modules, for where a program is deployed."""
        return [self.loader()]

    def loader(self) -> PythonLoader:
        """Return the loader whose engines this very object builds, with its options."""
        from graft.runtime.loaders import PythonLoader

        options = saved(self.option_rows(), self.option_values())
        return PythonLoader(self.kind(), self._load_module, options, holds_code=False)

    def _load_module(self, name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> dict[str, Engine]:
        graph = JsonGraph.from_json(data)

        def make(one: JsonGraph) -> Engine:
            engine: object = self.load(one, constants)
            if not callable(engine):
                raise PluginError(
                    f"backend '{self.name}': load of region '{name}' returned {type(engine).__name__}; "
                    "return a function that takes the inputs and returns the outputs",
                    plugin=self.name,
                )
            return engine

        varies = graph.symbols and self.shapes == "run-time"
        return {graph.symbol: ShapedEngines(graph, make) if varies else make(graph)}
