"""What a compiler makes of a C project: the bound of its stack, its code by function, and what it needs of libraries.

The bound is the longest path through the graph of calls from the entry point, by the frames that GCC says it gives
(`-fcallgraph-info=su`), and by the code of libraries where a linker brings that in. A call by a pointer may be of any
task of a kernel: nothing else is called so.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from graft.errors import ArtifactError
from graft.runtime.system.c_compiler import version_of
from graft.runtime.system.files import make_folder, write
from graft.runtime.system.library_frames import library_frames

LIBRARY_FRAME = 64
"""Bytes that a function of a library is taken to need whose code is not at hand: most of newlib's need fewer."""
OPTIMISATIONS = ("-Os", "-O2", "-O3")
"""What a compiler is tried with where a budget does not do."""
INDIRECT = "__indirect_call"
TASKS = re.compile(r"_task\d+_run\b")
_NODE = re.compile(r'^node: \{ title: "([^"]*)" label: "([^"]*)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', re.MULTILINE)
_FRAME = re.compile(r"\\n(\d+) bytes \(([a-z,]+)\)")
_SYMBOL = re.compile(r"^[0-9a-f]+ ([0-9a-f]+) ([tTwW]) (\S+)$", re.MULTILINE)
_SOFT_FLOAT = re.compile(
    r"^__aeabi_([fd]\w+|[ilu]+2[fd]|cf\w+|cd\w+)$|^__(float|fix|trunc|extend)\w*[sd]f\w*$|^__\w+[sd]f[23]$"
)
"""Functions of compilers for operations that a processor does not have: of ARM's ABI, and of the others."""
_UNKNOWN = re.compile(r"^\s+U (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Built:
    """What a compiler made of a project; bytes, by function where there are several."""

    compiler: str
    stack: int
    """At most, from the entry point on."""
    path: tuple[tuple[str, int], ...]
    """The calls that need it, and the frame of each."""
    frames: Mapping[str, int]
    code: Mapping[str, int]
    code_bytes: int
    """Code and constants, without the weights."""
    needs: Mapping[str, int | None]
    """The functions of libraries that it calls, with what they take of the stack; None where that is not known."""

    @property
    def soft_float(self) -> tuple[str, ...]:
        """Those that compute floats, which the processor does not, or not of this width."""
        return tuple(one for one in self.needs if _SOFT_FLOAT.match(one))


@dataclass
class CallGraph:
    """Frames and calls, by the names that a compiler has for functions; static ones carry their file."""

    frames: dict[str, int] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Take in what the compiler wrote of one file; raise ArtifactError for a frame without a bound."""
        for title, label in _NODE.findall(text):
            found = _FRAME.search(label)
            if found is None:
                continue
            if found[2] == "dynamic":
                raise ArtifactError(f"the frame of '{shown(title)}' has no bound, so that the stack has none")
            self.frames[title] = int(found[1])
        for source, target in _EDGE.findall(text):
            self.calls.setdefault(source, set()).add(target)

    def deepest(self, entry: str) -> tuple[tuple[str, int], ...]:
        """Return the calls from a function on that need most, with their frames; raise ArtifactError for recursion."""
        known: dict[str, tuple[tuple[str, int], ...]] = {}
        tasks = [one for one in self.frames if TASKS.search(one)]

        def visit(name: str, above: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
            if name in above:
                path = " -> ".join(map(shown, (*above[above.index(name) :], name)))
                raise ArtifactError(f"the stack has no bound, for functions call themselves: {path}")
            if name not in known:
                called = tasks if name == INDIRECT else sorted(self.calls.get(name, ()))
                below = max((visit(one, (*above, name)) for one in called), key=depth, default=())
                own = 0 if name == INDIRECT else self.frames.get(name, LIBRARY_FRAME)
                known[name] = ((shown(name), own), *below) if own else below
            return known[name]

        return visit(entry, ())


def least_text(size: int, with_flag: Callable[[str], int], most: int, otherwise: str) -> str:
    """Return the least that a compiler makes of a text with its usual flags, and what to change so that ``most`` do."""
    tried = {flag: with_flag(flag) for flag in OPTIMISATIONS}
    flag = min(tried, key=lambda one: tried[one])
    if size <= tried[flag]:
        return f"{size} is the least possible with {', '.join(OPTIMISATIONS)}: {otherwise}"
    remedy = f"compile with {flag}" if tried[flag] <= most else f"compile with {flag} and {otherwise}"
    return f"the least possible is {tried[flag]}, with {flag}: {remedy}"


def depth(path: Sequence[tuple[str, int]]) -> int:
    """Return the bytes of a path."""
    return sum(frame for _, frame in path)


def shown(title: str) -> str:
    """Return a function as the text calls it: without its file, and without what the compiler adds."""
    return title.rpartition(":")[2].partition(".")[0]


def built(
    name: str, texts: Mapping[str, str], sources: Sequence[str], command: Sequence[str], entry: str = ""
) -> Built:
    """Compile the sources of a project, whose files are ``texts``, with a command and look at what comes of it.

    The stack is that of ``<name>_run``, or of another ``entry``.

    Raises ArtifactError where the compiler is not there, is not GCC 10 or newer, or refuses.
    """
    with TemporaryDirectory(prefix="graft-built-") as made:
        folder = Path(made)
        for file, text in texts.items():
            make_folder((folder / file).parent, "a project", ArtifactError)
            write(folder / file, text, "project", ArtifactError)
        graph, objects = CallGraph(), []
        for source in sources:
            objects.append(source.replace(".c", ".o"))
            _run([*command, "-fcallgraph-info=su", "-I.", "-c", source, "-o", objects[-1]], folder)
            graph.add((folder / source.replace(".c", ".ci")).read_text(encoding="utf-8"))
        symbols = _run([_tool(command, "nm"), "-S", *objects], folder)
        sizes = _run([_tool(command, "size"), *objects], folder).splitlines()[1:]
        entry = entry or f"{name}_run"
        libraries = _frames_of_libraries(command, objects, entry, folder)
    functions = {one: int(size, 16) for size, _, one in _SYMBOL.findall(symbols)}
    needed = {one for one in _UNKNOWN.findall(symbols) if one not in functions and not one.startswith(f"{name}_")}
    needs = {one: libraries.get(one) for one in sorted(needed)}
    frames = {shown(one): frame for one, frame in graph.frames.items()}
    graph.frames.update({one: size for one, size in needs.items() if size is not None})
    path = graph.deepest(entry)
    return Built(
        f"{version_of(tuple(command[:1]))}: {shlex.join(command[1:])}",
        depth(path),
        path,
        frames,
        {shown(one): size for one, size in functions.items()},
        sum(int(row.split()[0]) + int(row.split()[1]) for row in sizes),
        needs,
    )


def _frames_of_libraries(command: Sequence[str], objects: Sequence[str], entry: str, folder: Path) -> dict[str, int]:
    """Return what functions of libraries take of the stack, {} where a program cannot be linked like that."""
    linked = ["-nostartfiles", f"-Wl,-e,{entry}", "-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all"]
    try:
        _run([*command, *linked, *objects, "-lm", "-o", "image"], folder)
        listing = _run([_tool(command, "objdump"), "-d", "--no-show-raw-insn", "image"], folder)
    except ArtifactError:
        return {}
    return library_frames(listing, _run([_tool(command, "nm"), "image"], folder))


def _tool(command: Sequence[str], name: str) -> str:
    found = subprocess.run([command[0], f"-print-prog-name={name}"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or name


def _run(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    except OSError as error:
        raise ArtifactError(f"the C compiler '{command[0]}' cannot be run: {error}; name another") from error
    if done.returncode == 0:
        return done.stdout
    if "callgraph-info" in done.stderr:
        raise ArtifactError(
            f"'{command[0]}' does not say the frames of functions, so that the stack has no bound; name GCC 10 or newer"
        )
    raise ArtifactError(f"'{shlex.join(command)}' refused the project: {done.stderr.strip()[:2000]}")
