"""Objects for the kernels of a region: from the cache, or compiled by LLVM while the next kernel is scheduled.

LLVM runs outside Python's lock but takes one call at a time (llvmlite has a lock of its own), so there is one thread
for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from types import TracebackType
from typing import Self

from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Function
from graft.plugins.codegen.constant_packing import Shared
from graft.plugins.llvm.cache import Entry, KernelCache, kernel_key
from graft.plugins.llvm.emit import llvm_version, module_ir, object_of, processor_of
from graft.plugins.llvm.object import link

SWITCH_SECONDS = 0.0002
"""How long LLVM's thread waits to be let in: its calls are short, and Python's usual 5 ms would be most of the time."""


class Codegen:
    """The objects of one region's kernels, in order; a context, in which LLVM's thread lives."""

    def __init__(self, target: Target, cache: KernelCache | None) -> None:
        self._target = target
        self._cache = cache
        processor, features = processor_of(target.machine)
        self._version = f"{llvm_version()} {processor} {','.join(features)}"
        self._pool = ThreadPoolExecutor(1, "graft-llvm")
        self._objects: list[tuple[str, Future[Entry]]] = []
        self._switch = sys.getswitchinterval()
        self.seconds = dict.fromkeys(("cache", "emit", "llvm", "wait", "link"), 0.0)
        """Time by stage; ``llvm`` is that of the other thread, ``wait`` how long this one waited for it at the end."""

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
        done: Future[Entry] = Future()
        done.set_result(entry)
        self._objects.append((name, done))
        return Shared(name, entry.places, entry.chosen)

    def add(self, function: Function, structure: str | None = None, shared: Shared | None = None) -> None:
        """Compile a function, and keep it in the cache if its kernel has a structure."""
        started = perf_counter()
        text = module_ir((function,), self._target)
        self.seconds["emit"] += perf_counter() - started
        self._objects.append((function.name, self._pool.submit(self._compile, text, function.name, structure, shared)))

    def image(self) -> bytes:
        """Return the native image of all functions; raise CompileError for what LLVM or the linker refuse."""
        started = perf_counter()
        entries = [future.result() for _, future in self._objects]
        linking = perf_counter()
        image = link([one.object for one in entries], self.names, [one.symbol for one in entries])
        self.seconds["wait"] += linking - started
        self.seconds["link"] += perf_counter() - linking
        return image

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the functions."""
        return tuple(name for name, _ in self._objects)

    @property
    def by_stage(self) -> Mapping[str, float]:
        """The stages that took time."""
        return {name: seconds for name, seconds in self.seconds.items() if seconds}

    def _compile(self, text: str, name: str, structure: str | None, shared: Shared | None) -> Entry:
        started = perf_counter()
        shared = shared or Shared(name, None)
        entry = Entry(name, object_of(text, name, self._target), shared.places, shared.chosen)
        self.seconds["llvm"] += perf_counter() - started
        if self._cache is not None and structure is not None and "custom[" not in structure:
            self._cache.put(self._key(structure), entry)
        return entry

    def _key(self, structure: str) -> str:
        return kernel_key(structure, self._target, self._version)
