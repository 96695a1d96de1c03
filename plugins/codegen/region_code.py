"""The code of a region's functions: taken one by one as they are scheduled, given as one module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType, TracebackType
from typing import Self

from graft.core.tensor_ir.ir import Function
from graft.errors import CompileError
from graft.plugins.codegen.constant_packing import Shared
from graft.runtime.procedure import Module

NO_ORIGINS: Mapping[str, Sequence[str]] = MappingProxyType({})


@contextmanager
def naming_nodes(*functions: Function) -> Iterator[None]:
    """Put before the message of a CompileError which nodes of the model the function in it computes."""
    try:
        yield
    except CompileError as error:
        named = error.facts.get("function")
        nodes = ", ".join(f"'{node}'" for one in functions if one.name == named for node in one.origin)
        if not nodes:
            raise
        raise CompileError(f"{nodes}: {error.message}", function=named) from error


class RegionCode(ABC):
    """A context in which functions are compiled; what holds threads or files ends them with it."""

    seconds: dict[str, float]
    """Where time went, by stage."""
    libraries: set[str]
    """The shared libraries whose C functions are called, by soname or path."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def find(self, structure: str, name: str) -> Shared | None:
        """Return what is kept of a kernel of this structure, which becomes the function ``name``; None if nothing."""
        return None

    @abstractmethod
    def add(self, function: Function, structure: str | None = None, shared: Shared | None = None) -> None:
        """Take a function; where its kernel has a structure, what becomes of it may be kept with ``shared``."""

    @abstractmethod
    def module(self, origins: Mapping[str, Sequence[str]] = NO_ORIGINS) -> Module | None:
        """Return the module of all functions, None if there are none.

        ``origins`` are the nodes of the model that each function computes, all calls of it together.
        """


@dataclass(slots=True)
class CollectedFunctions(RegionCode):
    """Functions that are emitted together at the end."""

    emit: Callable[[Sequence[Function]], Module]
    functions: list[Function] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    libraries: set[str] = field(default_factory=set)

    def add(self, function: Function, structure: str | None = None, shared: Shared | None = None) -> None:
        """Keep the function."""
        self.functions.append(function)

    def module(self, origins: Mapping[str, Sequence[str]] = NO_ORIGINS) -> Module | None:
        """Emit all functions."""
        if not self.functions:
            return None
        started = perf_counter()
        with naming_nodes(*self.functions):
            module = self.emit(self.functions)
        self.seconds["emit"] = perf_counter() - started
        return module
