"""What the kit runs in processes of their own: ``python -m graft.testkit.conformance.child ACTION ...``.

Nothing of the compiler is imported at the top: a deployed program has none.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graft.runtime.loaders import PluginFile
    from graft.runtime.program import Program

COMPILER = ("onnx", "onnx_ir", "llvmlite", "graft.compiler", "graft.core.importer", "graft.partition")
"""What is not there where a program is deployed."""
WARM, RUNS = 300, 3000
GROWTH = 2 << 20
"""The bytes by which a process may grow in `RUNS` runs after `WARM`."""
MORE = 8
"""The open files and threads by which it may grow: pools start theirs when they are first needed."""


class Missing(MetaPathFinder):
    """Makes modules, and whatever is in them, missing."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse what is missing."""
        if any(name == one or name.startswith(f"{one}.") for one in self.names):
            raise ModuleNotFoundError(f"{name} is not there where a program is deployed", name=name)


def _load(files: str, artifact: str, threads: int = 2) -> Program:
    """Load an artifact, with the loaders of plugins that are ``files`` besides those of installed ones."""
    from graft.runtime.loading import load

    return load(artifact, threads=threads, strict=True, loaders=_loaders(files))


def _loaders(files: str) -> list[PluginFile]:
    from graft.runtime.loaders import PluginFile
    from graft.runtime.system.plugin_files import name_of

    return [PluginFile(name_of(Path(file)), file) for file in files.split(os.pathsep) if file]


def deployed(files: str, artifact: str, inputs: str, results: str) -> None:
    """Load an artifact without the compiler and run it."""
    sys.meta_path.insert(0, Missing(COMPILER))
    program = _load(files, artifact, threads=1)
    outputs: dict[str, Any] = program.run(dict(np.load(inputs)))
    np.savez(results, **outputs)


def missing(artifact: str, plugin: str) -> None:
    """Load an artifact where its plugin is not installed, and print what is said."""
    import importlib.metadata

    everything: Callable[..., Any] = importlib.metadata.entry_points

    def without(**wanted: Any) -> Any:
        found = everything(**wanted)
        return importlib.metadata.EntryPoints(entry for entry in found if entry.name != plugin)

    importlib.metadata.entry_points = without
    from graft.errors import GraftError
    from graft.runtime.loading import load

    try:
        load(artifact, threads=1, strict=True)
    except GraftError as error:
        print(error.message)
    else:
        print("")


def compiled(files: str, backend: str, model: str, artifact: str) -> None:
    """Compile a model onto a backend, which may have options, and save it."""
    import graft
    from graft.plugins.registry.manager import PluginManager

    manager = PluginManager()
    for path in files.split(os.pathsep):
        if path:
            manager.load_file(path)
    others = [] if backend == "reference" else ["reference"]
    graft.compile(model, [backend, *others], threads=1, cache=False, strict=True, manager=manager).save(artifact)


def listed(name: str) -> None:
    """List plugins from their metadata, and print which modules of the plugin that was imported for."""
    from graft.plugins.discovery import discover

    before = set(sys.modules)
    values = [source.value for source in discover() if source.name == name]
    modules = {value.partition(":")[0].partition(".")[0] for value in values} - {"graft"}
    print(" ".join(sorted({one.partition(".")[0] for one in {*before, *sys.modules}} & modules)))


def grown(files: str, artifact: str, inputs: str) -> None:
    """Run a program many times and print by how many bytes, open files and threads the process grew."""
    program, feeds = _load(files, artifact), dict(np.load(inputs))
    for _ in range(WARM):
        program.run(feeds)
    before = _held()
    for _ in range(RUNS):
        program.run(feeds)
    print(*_held() - before)


def reloaded(files: str, artifact: str, inputs: str) -> None:
    """Load, run and drop a program many times and print by how many bytes, open files and threads the process grew."""
    feeds = dict(np.load(inputs))
    for number in range(120):
        if number == 40:
            before = _held()
        _load(files, artifact).run(feeds)
    print(*_held() - before)


def forked(files: str, artifact: str, inputs: str, results: str) -> None:
    """Run a program, fork, run it in both processes, and keep what the child computes."""
    program, feeds = _load(files, artifact), dict(np.load(inputs))
    program.run(feeds)
    child = os.fork()
    if child == 0:
        outputs: dict[str, Any] = program.run(feeds)
        np.savez(results, **outputs)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    program.run(feeds)
    sys.exit(0 if status == 0 else f"a forked process ends with status {status}")


def damaged(files: str, artifact: str, inputs: str) -> None:
    """Load and run a program with the bytes of its modules changed: an error or a result, nothing else."""
    from dataclasses import replace

    from graft.errors import GraftError
    from graft.runtime.artifact import read
    from graft.runtime.program import Program

    description, feeds = read(artifact), dict(np.load(inputs))
    rng = np.random.default_rng(0)
    for number, module in enumerate(description.modules):
        if module.kind in ("native", "c_source") or not module.data:
            continue
        for turn in range(40):
            data = bytearray(module.data)
            if turn % 2:
                data = data[: int(rng.integers(len(data)))]
            else:
                data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            modules = list(description.modules)
            modules[number] = replace(module, data=bytes(data))
            try:
                Program.from_description(replace(description, modules=tuple(modules)), 1, _loaders(files)).run(feeds)
            except GraftError:
                continue


def _held() -> np.ndarray:
    """Return the bytes of memory, the open files and the threads of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return np.array([resident, *(len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task"))])


ACTIONS: dict[str, Callable[..., None]] = {
    action.__name__: action for action in (deployed, missing, compiled, listed, grown, reloaded, forked, damaged)
}

if __name__ == "__main__":
    ACTIONS[sys.argv[1]](*sys.argv[2:])
