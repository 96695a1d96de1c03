"""Native objects for the kernels of a region: from the cache, or compiled while the next kernel is scheduled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import NamedTuple, Self

from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Function
from graft.plugins.c_libraries import link_flags
from graft.plugins.codegen.constant_packing import Shared
from graft.plugins.codegen.kernel_cache import Entry, KernelCache, kernel_key
from graft.plugins.codegen.kernel_source import KernelSource, joined
from graft.plugins.codegen.region_code import NO_ORIGINS, RegionCode, naming_nodes
from graft.plugins.native_image import link
from graft.runtime import objects
from graft.runtime.loaders import C_SOURCE, NATIVE
from graft.runtime.procedure import Module

SWITCH_SECONDS = 0.0002
"""How long a compiler's thread waits to be let in: its calls are short beside the 5 ms that are usual."""


class Written(NamedTuple):
    """A function as what is compiled; and, where that is C, as what the module keeps of it."""

    text: str
    source: KernelSource | None = None


def unlinked(names: Sequence[str], symbols: Sequence[str], code: Sequence[bytes]) -> Module:
    """Return a module of objects, with a function ``names[i]`` that ``code[i]`` has as ``symbols[i]``."""
    rows = zip(names, symbols, code, strict=True)
    return Module("", objects.KIND, tuple(names), objects.pack_objects(objects.ObjectFunction(*row) for row in rows))


@dataclass(frozen=True, slots=True)
class ObjectCompiler:
    """How one function becomes an ELF object: its text, and what compiles a text beside other work."""

    name: str
    """The backend's."""
    version: str
    """Of the compiler: what it makes of a text depends on it."""
    sources: Path | None
    """The folder or file of the emitter, part of the key of what is kept."""
    text: Callable[[Function], Written]
    compile: Callable[[str, str], bytes]
    """From text and name of a function; raises CompileError."""
    threads: int = 1
    """How many texts are compiled at once."""
    symbol: str = "{}"
    """The name of a function in its object."""
    is_linked: bool = True
    """Whether the objects become a native image here; else they are linked when the program is exported."""


class KernelObjects(RegionCode):
    """The objects of one region's kernels, in order."""

    def __init__(self, compiler: ObjectCompiler, target: Target, directory: Path | None, said: str = "") -> None:
        """``directory`` is where compiled code is kept, None to keep none; ``said`` is known of the compiler."""
        self._compiler, self._said = compiler, said
        self._target = target
        self._cache = None if directory is None else KernelCache(directory / "kernels")
        self._pool = ThreadPoolExecutor(compiler.threads, f"graft-{compiler.name}")
        self._objects: list[tuple[str, Future[Entry]]] = []
        self._switch = sys.getswitchinterval()
        self.libraries: set[str] = set()
        self.seconds = dict.fromkeys(("cache", "emit", compiler.name, "wait", "link"), 0.0)
        """The backend's name stands for its threads, ``wait`` for how long this one waited for them at the end."""

    def __enter__(self) -> Self:
        sys.setswitchinterval(SWITCH_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        sys.setswitchinterval(self._switch)

    def find(self, structure: str, name: str) -> Shared | None:
        """Look for a kernel of this structure in the cache; if it is there, it becomes the function ``name``."""
        if self._cache is None or "custom[" in structure:
            return None
        started = perf_counter()
        entry = self._cache.get(self._key(structure))
        self.seconds["cache"] += perf_counter() - started
        if entry is None:
            return None
        if entry.source is not None:
            entry = replace(entry, source=entry.source.renamed(name))
        done: Future[Entry] = Future()
        done.set_result(entry)
        self._objects.append((name, done))
        return Shared(name, entry.places, entry.chosen)

    def add(self, function: Function, structure: str | None = None, shared: Shared | None = None) -> None:
        """Compile a function, and keep it in the cache if its kernel has a structure."""
        started = perf_counter()
        with naming_nodes(function):
            written = self._compiler.text(function)
        self.seconds["emit"] += perf_counter() - started
        self._objects.append((function.name, self._pool.submit(self._compile, written, function, structure, shared)))

    def module(self, origins: Mapping[str, Sequence[str]] = NO_ORIGINS) -> Module | None:
        """Return all functions as a native image; raise CompileError for what compiler or linker refuse."""
        if not self._objects:
            return None
        started = perf_counter()
        entries = [future.result() for _, future in self._objects]
        linking = perf_counter()
        names = tuple(name for name, _ in self._objects)
        module = self._module(entries, names)
        self.seconds["wait"] += linking - started
        self.seconds["link"] += perf_counter() - linking
        if self._cache is not None and self.seconds["emit"]:
            self._cache.trim()
        sources = {name: one.source for name, one in zip(names, entries, strict=True) if one.source is not None}
        if len(sources) < len(names):
            return module
        source = replace(joined(sources, origins), compiler=self._said, libraries=link_flags(sorted(self.libraries)))
        return replace(module, source=source)

    def _module(self, entries: Sequence[Entry], names: tuple[str, ...]) -> Module:
        symbols = [one.symbol for one in entries]
        if self._compiler.is_linked:
            code, libraries = [one.object for one in entries], sorted(self.libraries) or None
            kind = C_SOURCE if libraries else NATIVE
            return Module("", kind, names, link(code, names, symbols, libraries))
        return unlinked(names, symbols, [one.object for one in entries])

    def _compile(self, written: Written, function: Function, structure: str | None, shared: Shared | None) -> Entry:
        started = perf_counter()
        shared = shared or Shared(function.name, None)
        with naming_nodes(function):
            code = self._compiler.compile(written.text, function.name)
        symbol = self._compiler.symbol.format(function.name)
        entry = Entry(symbol, code, shared.places, shared.report, written.source)
        self.seconds[self._compiler.name] += perf_counter() - started
        if self._cache is not None and structure is not None and "custom[" not in structure:
            self._cache.put(self._key(structure), entry)
        return entry

    def _key(self, structure: str) -> str:
        return kernel_key(structure, self._target, self._compiler.version, self._compiler.sources)
