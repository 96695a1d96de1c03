"""The process of an isolated plugin: it imports the plugin, and answers what a `RemotePlugin` asks of its backends.

``python -m graft.plugins.registry.remote N`` obeys the socket with descriptor N until its other end is gone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import graft.runtime._native as _native
from graft.core.differentiation.reverse import given
from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.errors import GraftError, PluginError
from graft.partition.region import Region
from graft.patterns.matching import matches
from graft.plugins.discovery import PluginSource
from graft.plugins.isolation.messages import STATED, Opening, RemoteDeclaration
from graft.plugins.isolation.pieces import Derivative, Nodes, RegionPiece, derivative_of, read_nodes, read_region
from graft.plugins.registry.fence import FencedBackend, trace_of
from graft.plugins.registry.manager import Plugin, PluginManager
from graft.plugins.time_limit import LIMITS, Limits
from graft.runtime.isolation import sandbox

OTHER_HOOKS = (
    "graft_cost_tables", "graft_datatypes", "graft_operators", "graft_passes", "graft_region_compiled",
    "graft_report_sections", "graft_torch_operators",
)  # fmt: skip
"""What a plugin may bring besides backends, machines and loaders; it would run in the host's process."""
STATUS_CHILD = 70
"""How a child ends that a plugin has forked and let back into the call."""


Options = Mapping[str, object]
"""What a backend is configured to, other than by its plugin."""


class Answers:
    """The plugin's backends, and a method for everything that is asked of them."""

    def __init__(self, plugin: Plugin) -> None:
        self._backends: dict[tuple[str, str], FencedBackend] = {
            (backend.name, "{}"): backend for backend in plugin.backends
        }
        self._machines = plugin.machines

    def _backend(self, name: str, options: Options) -> FencedBackend:
        """Return a backend with options, which is built once."""
        key = name, json.dumps(options, sort_keys=True)
        if key not in self._backends:
            self._backends[key] = self._backends[name, "{}"].configured(options)
        return self._backends[key]

    def declarations(self) -> tuple[list[RemoteDeclaration], list[Any]]:
        """Return what all backends say of themselves, and the plugin's machines."""
        return [self.declaration_of(name, {}) for name, _ in list(self._backends)], list(self._machines)

    def declaration_of(self, backend: str, options: Options) -> RemoteDeclaration:
        """Return what a backend with options says of itself."""
        one = self._backend(backend, options)
        patterns = tuple((row.name, row.pattern, row.check is not None, row.vjp is not None) for row in one.patterns)
        stated = {attribute: getattr(one, attribute) for attribute in STATED}
        return RemoteDeclaration(stated, patterns, one.option_rows(), one.option_values())

    def check(self, backend: str, options: Options, composite: str, piece: Nodes) -> Reject | None:
        """Return what the check of a composite says of the nodes that its pattern matched."""
        nodes = read_nodes(piece)
        row = next(one for one in self._backend(backend, options).patterns if one.name == composite)
        assert row.check is not None, composite
        for match in matches(row.pattern, nodes[-1]):
            names = {name: None if value is None else value.name for name, value in match.captures.items()}
            if len(match.members) == len(nodes) and names == dict(piece.captures):
                answer = row.check(match)
                return answer if isinstance(answer, Reject) else None
        return Reject("no-pattern", f"{backend}'s process finds no such match of '{composite}'")

    def derivative(
        self, backend: str, options: Options, composite: str, piece: Derivative
    ) -> tuple[list[bytes], list[str]]:
        """Return the nodes that a composite's derivative writes, and the gradients that it gives."""
        row = next(one for one in self._backend(backend, options).patterns if one.name == composite)
        assert row.vjp is not None, composite
        return derivative_of(piece, partial(given, rule=row.vjp, owner=backend))

    def ask_node(self, backend: str, options: Options, method: str, piece: Nodes) -> Any:
        """Return the answer of ``supports`` or ``yields`` about a node."""
        return getattr(self._backend(backend, options), method)(NodeView(read_nodes(piece)[-1]))

    def ask_region(self, backend: str, options: Options, method: str, piece: RegionPiece, *others: Any) -> Any:
        """Return the answer of ``compile``, ``cost``, ``cost_on`` or ``rounded`` about a region."""
        return getattr(self._backend(backend, options), method)(read_region(piece), *others)

    def tune(self, backend: str, options: Options, pieces: list[RegionPiece], *others: Any) -> Any:
        """Return the report of a backend that measured regions."""
        regions: list[Region] = [read_region(piece) for piece in pieces]
        return self._backend(backend, options).tune(regions, *others)

    def ask(self, backend: str, options: Options, method: str, *arguments: Any) -> Any:
        """Return the answer of any other method."""
        return getattr(self._backend(backend, options), method)(*arguments)

    def passes(self, backend: str, options: Options) -> int:
        """Return how many passes a backend has."""
        return len(self._backend(backend, options).passes())


def open_plugin(source: PluginSource, limits: Limits = LIMITS) -> Answers:
    """Import a plugin; raise PluginError if it fails, or brings what cannot be asked for from another process."""
    manager = PluginManager(sources=() if source.is_file else (source,), limits=limits)
    plugin = manager.load_file(source.value) if source.is_file else manager.plugins()[0]
    if plugin.failure is not None:
        raise plugin.failure
    others = [name for name in OTHER_HOOKS if hasattr(plugin.hooks, name)]
    if others:
        raise PluginError(
            f"plugin '{plugin.name}' brings {', '.join(others)}, which run in the process that compiles; "
            "isolate it with compile=False",
            plugin=plugin.name,
        )
    return Answers(plugin)


def portable(error: BaseException) -> GraftError:
    """Return an exception as one that any process can read: of Graft's own classes, its traceback as a note."""
    if type(error).__module__ != "graft.errors" or not isinstance(error, GraftError):
        text = f"{type(error).__name__}: {error}"
        found: GraftError = PluginError(text)
    else:
        facts = {name: fact for name, fact in error.facts.items() if isinstance(fact, str | int | float)}
        found = type(error)(error.message, **facts)  # type: ignore[arg-type]
    trace = trace_of(error.__cause__)
    if trace:
        found.add_note(trace)
    return found


def answer(connection: Connection, ask: Callable[[], Any]) -> None:
    """Send an answer, or the error in its place; a child that a plugin forked and let back into the call is ended."""
    own = os.getpid()
    _native.last_refusal()  # what an earlier answer tried
    try:
        reply = (True, ask())
    except Exception as error:
        failure = portable(error)
        message = "; ".join(filter(None, (failure.message, _native.last_refusal())))
        reply = (False, (type(failure), message, failure.facts, getattr(failure, "__notes__", [])))
    if os.getpid() != own:
        os._exit(STATUS_CHILD)
    try:
        connection.send(reply)
    except (TypeError, AttributeError, ValueError) as error:  # what pickle says of objects of no module
        text = f"its answer cannot be sent to another process: {error}"
        connection.send((False, (PluginError, text, {}, [])))


def main() -> None:
    """Obey the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # what vendors print is no answer of ours
    connection = Connection(int(sys.argv[1]))
    opening: Opening = connection.recv()
    sys.path[:] = opening.path
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if opening.memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (opening.memory, opening.memory))
    answers: list[Answers] = []

    def begin() -> Any:
        if opening.sandbox is not None:
            sandbox.enter([*sandbox.installed(), *opening.sandbox])
        answers.append(open_plugin(opening.source, opening.limits))
        return answers[0].declarations()

    answer(connection, begin)
    while answers:
        try:
            method, arguments = connection.recv()
        except (EOFError, OSError):
            return
        answer(connection, partial(getattr(answers[0], method), *arguments))


if __name__ == "__main__":
    main()
