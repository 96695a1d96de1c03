"""The host's side of an isolated plugin: backends whose answers come from another process."""

from __future__ import annotations

import math
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from graft.core.reject import Reject, Yield
from graft.errors import PluginError
from graft.patterns.composite import Composite
from graft.plugins.backend import Backend, CompiledRegion, ModuleReport
from graft.plugins.isolation.answers import read_answer
from graft.plugins.isolation.messages import Opening, RemoteDeclaration
from graft.plugins.isolation.pieces import add_derivative, write_adjoint, write_nodes, write_region
from graft.plugins.time_limit import LIMITS, Limits
from graft.runtime.isolation.connection import clean_environment
from graft.runtime.isolation.endings import ending
from graft.runtime.isolation.environments import with_interpreter
from graft.runtime.isolation.sandbox import of_file, of_module, require
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    import numpy as np

    from graft.core.backend_spec import OptionValue
    from graft.core.graph.view import NodeView
    from graft.core.machine.target import CompileOptions
    from graft.core.operators.definition.adjoint import Adjoint
    from graft.core.tuning.options import TuneOptions, TuneReport
    from graft.partition.region import Region
    from graft.patterns.match import Match
    from graft.plugins.discovery import PluginSource
    from graft.plugins.options.declared import Option
    from graft.runtime.isolation.options import Isolation

GRACE = 5.0
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A thread that an import starts before the sandbox is entered would stay outside."""
START = 20.0
"""Seconds that a process may take to begin, beside the import of its plugin."""


class RemotePlugin:
    """A plugin in a process of its own, which is started anew when it was lost."""

    def __init__(self, source: PluginSource, how: Isolation, limits: Limits = LIMITS) -> None:
        if how.sandbox:
            require()
        self.source, self.how, self.limits = source, how, limits
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._declared: tuple[list[RemoteDeclaration], list[Any]] | None = None

    def backends(self) -> list[RemoteBackend]:
        """Start the process, which imports the plugin, and return its backends; raise PluginError if it fails."""
        return [_class_of(declared)(self, declared) for declared in self._facts()[0]]

    def machines(self) -> list[Any]:
        """Return the machines that the plugin describes."""
        return self._facts()[1]

    def ask(self, doing: str, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Return an answer; raise what the plugin raised, or PluginError for a process that was lost meanwhile."""
        with self._lock:
            if self._connection is None:
                self._declared = self._start()
            assert self._connection is not None
            try:
                self._connection.send((method, arguments))
            except (OSError, EOFError):
                raise self._lost(doing) from None
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise PluginError(f"{doing} cannot be asked in another process: {error}") from error
            return self._answer(doing, self.how.seconds if seconds is None else seconds)

    def _facts(self) -> tuple[list[RemoteDeclaration], list[Any]]:
        with self._lock:
            if self._declared is None:
                self._declared = self._start()
            return self._declared

    def _start(self) -> tuple[list[RemoteDeclaration], list[Any]]:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "graft.plugins.registry.remote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2, start_new_session=True,
                env={**clean_environment(), **ONE_THREAD} if self.how.sandbox else with_interpreter(self.how),
            )  # fmt: skip
        self._connection = Connection(ours.detach())
        readable = self._readable() if self.how.sandbox else None
        self._connection.send(Opening(sys.path, self.how.memory, self.source, self.limits, readable))
        seconds = min(self.how.load_seconds or math.inf, self.limits.importing + START)
        declared: tuple[list[RemoteDeclaration], list[Any]] = self._answer("its import", seconds)
        return declared

    def _readable(self) -> list[str]:
        return of_file(self.source.value) if self.source.is_file else of_module(self.source.value)

    def _answer(self, doing: str, seconds: float) -> Any:
        assert self._connection is not None
        try:
            if not self._connection.poll(seconds or None):
                raise self._lost(doing, late=seconds)
            fine, value = read_answer(self._connection.recv_bytes(), self.how.sandbox)
        except (OSError, EOFError):
            raise self._lost(doing) from None
        except (pickle.UnpicklingError, AttributeError, ImportError, TypeError, ValueError) as error:
            self._end()
            raise PluginError(
                f"plugin '{self.source.name}' gave in {doing} what this process cannot read: {error}",
                plugin=self.source.name,
            ) from error
        if fine:
            return value
        kind, message, facts, notes = value
        raised = kind(message, **facts)
        for note in notes:
            raised.add_note(note)
        raise raised

    def _lost(self, doing: str, late: float = 0.0) -> PluginError:
        """Return what became of the process in what it was doing."""
        status = self._end()
        text = f"did not answer within {late:g} s and was stopped" if late else ending(status)
        name = self.source.name
        return PluginError(f"plugin '{name}': its process {text} in {doing}", plugin=name, doing=doing)

    def _end(self) -> int | None:
        """Drop the process; return how it ended, if by itself."""
        assert self._process is not None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        try:
            return self._process.wait(GRACE / 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(GRACE)
            return None

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _asked(method: str) -> Any:
    def ask(backend: RemoteBackend, *arguments: Any) -> Any:
        """Return the other process's answer."""
        return backend._ask(method, "ask", method, *arguments)

    return ask


def _asked_of_region(method: str) -> Any:
    def ask(backend: RemoteBackend, region: Region, *others: Any) -> Any:
        """Return the other process's answer."""
        return backend._ask(f"{method} of region '{region.name}'", "ask_region", method, write_region(region), *others)

    return ask


class RemoteBackend(Backend):
    """A backend of a `RemotePlugin`: it has what the one in the other process declares, and asks that for the rest."""

    def __init__(
        self, plugin: RemotePlugin, declared: RemoteDeclaration, configuration: Mapping[str, object] | None = None
    ) -> None:
        self._plugin = plugin
        self._declared = declared
        self._configuration = dict(configuration or {})

    def _ask(self, doing: str, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        return self._plugin.ask(doing, method, self.name, self._configuration, *arguments, seconds=seconds)

    def option_rows(self) -> tuple[Option, ...]:
        """Return what the other process has declared."""
        return self._declared.rows

    def option_values(self) -> dict[str, OptionValue]:
        """Return what the other process has declared."""
        return dict(self._declared.values)

    def configured(self, options: Mapping[str, object]) -> Backend:
        """Return the backend of the other process that is configured so."""
        if not options:
            return self
        wanted = {**self._configuration, **options}
        declared: RemoteDeclaration = self._plugin.ask("its options", "declaration_of", self.name, wanted)
        return _class_of(declared)(self._plugin, declared, wanted)

    @property
    def patterns(self) -> Sequence[Composite]:
        """The composites, their checks and derivatives asked of the other process."""
        return tuple(
            Composite(
                name, pattern, partial(self._check, name) if checked else None,
                partial(self._derivative, name) if has_vjp else None,
            )
            for name, pattern, checked, has_vjp in self._declared.patterns
        )  # fmt: skip

    def _check(self, name: str, match: Match) -> Reject | None:
        piece = write_nodes(match.sorted_members(), match.captures)
        if piece is None:
            return Reject("no-pattern", "an isolated plugin is not asked for control flow")
        answer: Reject | None = self._ask(f"the check of '{name}'", "check", name, piece)
        return answer

    def _derivative(self, name: str, f: Adjoint) -> Sequence[str]:
        answer = self._ask(f"the derivative of '{name}'", "derivative", name, write_adjoint(f))
        return add_derivative(f, *answer)

    def passes(self) -> Sequence[Any]:
        """Return no passes; raise PluginError if the backend has some."""
        if self._ask("passes", "passes"):
            raise PluginError(
                f"backend '{self.name}' has passes, which run in the process that compiles; isolate it with "
                "compile=False",
                backend=self.name,
            )
        return ()

    def supports(self, node: NodeView) -> bool | Reject:
        """Return the other process's answer."""
        piece = write_nodes([node.node], {})
        if piece is None:
            return Reject("no-pattern", "an isolated plugin is not asked for control flow")
        answer: bool | Reject = self._ask(f"supports({node.where})", "ask_node", "supports", piece)
        return answer

    def yields(self, node: NodeView) -> Yield | None:
        """Return the other process's answer."""
        piece = write_nodes([node.node], {})
        if piece is None:
            return None
        answer: Yield | None = self._ask(f"yields({node.where})", "ask_node", "yields", piece)
        return answer

    def compile(self, region: Region, options: CompileOptions) -> Module | CompiledRegion:
        """Compile a region in the other process.

        Raise PluginError where its modules cannot run in a process of their own.
        """
        compiled: Module | CompiledRegion = self._ask(
            f"compile of region '{region.name}'", "ask_region", "compile", write_region(region), options,
            seconds=self._plugin.how.load_seconds,
        )  # fmt: skip
        modules = (compiled,) if isinstance(compiled, Module) else compiled.modules
        own = self._plugin.source.name
        if self._plugin.how.sandbox and (other := next((one.plugin for one in modules if one.plugin != own), None)):
            raise PluginError(
                f"plugin '{own}', which is in a sandbox, gives region '{region.name}' a module of plugin '{other}', "
                "which may not be in one",
                plugin=own, backend=self.name,
            )  # fmt: skip
        bound = next((module.bound for module in modules if module.bound), "")
        if bound:
            raise PluginError(
                f"region '{region.name}' was compiled for the process of its plugin alone: {bound}; isolate it with "
                "compile=False",
                backend=self.name,
            )
        return compiled

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        """Tune in the other process."""
        pieces = [write_region(region) for region in regions]
        limit = self._plugin.how.load_seconds + wish.seconds
        report: TuneReport | None = self._ask("tune", "tune", pieces, options, wish, seconds=limit)
        return report

    rounded, cost, cost_on = _asked_of_region("rounded"), _asked_of_region("cost"), _asked_of_region("cost_on")
    generates_code, available, recompile = _asked("generates_code"), _asked("available"), _asked("recompile")
    fingerprint, version = _asked("fingerprint"), _asked("version")

    def simulated(self, module: Module, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray] | None:
        """Return the other process's answer."""
        given = replace(module, source=None), list(inputs)
        answer: Sequence[np.ndarray] | None = self._ask("simulated", "ask", "simulated", *given)
        return answer

    def report(self, module: Module) -> ModuleReport | None:
        """Return the other process's answer."""
        answer: ModuleReport | None = self._ask("report", "ask", "report", replace(module, source=None))
        return answer

    def disassemble(self, module: Module) -> str | None:
        """Return the other process's answer."""
        answer: str | None = self._ask("disassemble", "ask", "disassemble", replace(module, source=None))
        return answer


def _class_of(declared: RemoteDeclaration) -> type[RemoteBackend]:
    """Return a class with what the backend declares, for declarations are read off classes."""
    attributes: Mapping[str, Any] = {**declared.attributes, "__doc__": RemoteBackend.__doc__}
    kind: type[RemoteBackend] = type("RemoteBackend", (RemoteBackend,), dict(attributes))
    kind.rules = declared.attributes["rules"]  # which making the class has set to its own
    return kind
