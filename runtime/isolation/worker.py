"""A process with one module of a vendor's: it loads it, says so, and answers calls on channels."""

from __future__ import annotations

import os
import pickle
import resource
import socket
import sys
import threading
from base64 import b64decode
from typing import Any, NoReturn

import graft.runtime._native as _native
from graft.runtime.foreign import kind_of, said
from graft.runtime.isolation import sandbox
from graft.runtime.isolation.messages import receive, send
from graft.runtime.isolation.package import Package, read
from graft.runtime.isolation.toolkit import VARIABLE
from graft.runtime.loaders import Given, Loader, LoaderRegistry, NativeLoader
from graft.runtime.procedure import Module, Procedure, ProgramDescription

STATUS_GONE = 70
"""How a worker ends whose host is gone."""


def work(package: int, end: int) -> NoReturn:
    """Load the module in a memory and serve it on a socket; end the process then."""
    status = 1
    try:
        os.setpgid(0, 0)
        os.dup2(2, 1)  # what vendors print is no answer of ours
        sys.stdout = sys.stderr
        host = socket.socket(fileno=end)
        _serve(host, read(package))
        status = STATUS_GONE
    finally:
        os._exit(status)


def _serve(host: socket.socket, package: Package) -> None:
    functions = tuple(package.facts["functions"])
    sys.path[:] = package.facts["path"]  # what the host imports, this imports
    _limit(package.facts["memory"])
    if package.facts["interpreter"]:
        os.environ[VARIABLE] = package.facts["interpreter"]
    try:
        if package.facts["sandbox"] is not None:
            sandbox.enter([*sandbox.installed(), *package.facts["sandbox"]])
        program = _program_of(package)
    except BaseException as error:
        refusal = _native.last_refusal()
        send(host, {"kind": kind_of(error), "error": f"{said(error)}; {refusal}" if refusal else said(error)})
        return
    send(host, {"ready": True})
    while (order := receive(host)) is not None:
        (channel,) = order[1]
        threading.Thread(target=_serve_channel, args=(program, functions, channel), daemon=True).start()


def _serve_channel(program: Any, functions: tuple[str, ...], channel: int) -> None:
    try:
        _native.serve(program, functions, channel)
    finally:
        os.close(channel)


def _limit(memory: int | None) -> None:
    """Bound what the process may take beside what it has, and leave no core file behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        with open("/proc/self/statm", encoding="ascii") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (data + memory, data + memory))


def _program_of(package: Package) -> Any:
    """Return a native program that has the module and runs nothing by itself."""
    from graft.runtime.program import manifest_of

    facts = package.facts
    functions = tuple(facts["functions"])
    module = Module(
        facts["name"], facts["kind"], functions, package.data, package.constants, facts["plugin"], facts["install"],
        backend=facts["backend"], options=facts["options"],
    )  # fmt: skip
    nothing = Procedure("main", (), (), (), ())
    loader = _loader_of(module, facts["loader"])
    rows = [] if loader is None else [(module.kind, loader.library if isinstance(loader, NativeLoader) else loader)]
    return _native.Program(
        manifest_of(ProgramDescription((nothing,), (module,), {})),
        [(module.name, module.kind, module.data, dict(module.constants))],
        {},
        rows,
        facts["threads"],
    )


def _loader_of(module: Module, pickled: str | None) -> Loader | None:
    """Return the module's loader; None for kinds that the runtime loads itself."""
    # What the host itself pickled: its loader, or the file of the plugin, or nothing.
    given: Given | None = pickle.loads(b64decode(pickled)) if pickled else None
    return LoaderRegistry(() if given is None else (given,)).resolve(module)
