"""Compiled parts kept on disk, as artifacts, for the next process that compiles the same part in the same way.

An entry is found by the sha256 of everything that it depends on: the model with its weights, the options, the machine,
the tuned parameters, and every file of Graft and of the plugins' packages. Entries are run, so only those are believed
that nobody else can have made (`graft.runtime.system.private`), and whose bytes are those that were written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from graft.compiler.request import plugins
from graft.core.machine.host import host_machine
from graft.core.machine.target import tuned_database
from graft.errors import GraftError
from graft.plugins.codegen.kernel_cache import PROGRAM_BYTES, KernelCache, described
from graft.runtime.artifact import check, save
from graft.runtime.loading import load
from graft.runtime.program import Program
from graft.runtime.system.cache_directory import cache_directory
from graft.runtime.system.private import inner_folder, private_folder, why_not_private
from graft.torch.conversion import is_dense
from graft.torch.options import Options

log = logging.getLogger("graft")
KEEPER = "graft-keep"
"""The name of threads that write programs."""


class Digests:
    """The sha256 of weights by the memory that they lie in, computed by a thread while PyTorch traces."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._arrays = [_memory(one) for one in tensors]
        self._found: dict[tuple[int, int], bytes] = {}
        self._thread = threading.Thread(target=self._compute) if self._arrays else None
        if self._thread is not None:
            self._thread.start()

    def of(self, array: np.ndarray) -> bytes:
        """Return the digest of an array's bytes."""
        if self._thread is not None:
            self._thread.join()
        found = self._found.get((array.ctypes.data, array.nbytes)) if array.flags.c_contiguous else None
        return found or hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()

    def _compute(self) -> None:
        for array in self._arrays:
            self._found[array.ctypes.data, array.nbytes] = hashlib.sha256(array.data).digest()


def _memory(tensor: torch.Tensor) -> np.ndarray:
    """Return the bytes of a tensor as they lie, none where they have gaps or are not its numbers."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return np.empty(0, np.uint8)
    if not is_dense(tensor):
        return np.empty(0, np.uint8)
    found: np.ndarray = tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
    return found


def folder_of(options: Options) -> Path | None:
    """Return where programs of parts are kept; None with plugins in processes of their own and users' formats."""
    directory = cache_directory()
    if directory is None or options.isolate is not None or options.datatype is not None:
        return None
    return directory / "programs"


def kept(
    model: ir.Model, options: Options, backends: Any, dims: Mapping[str, Any] | None, compiled: Callable[[], Program],
    digests: Digests,
) -> Program:  # fmt: skip
    """Return the program of a part: the one that is kept, else what ``compiled`` gives, which a thread keeps then.

    Nothing is kept of parts with plugins in processes of their own, with formats and objects of the user's, or with
    operators of a domain of somebody's, whose lowering may be any plugin's.
    """
    folder = folder_of(options)
    own = isinstance(backends, list | tuple) and all(isinstance(one, str) for one in backends)
    own = own and not any(node.domain for node in model.graph)
    if folder is None or not own:
        return compiled()
    threads = options.threads or torch.get_num_threads()
    plan = None if options.plan is None else options.plan.to_json()
    facts = [backends, options.precision, plan, threads, dims, options.backends is None]
    key = _key(model, json.dumps([*facts, *sorted(_files(_homes()))], default=str), digests)
    if (found := _loaded(folder, key, threads)) is not None:
        return found
    program = compiled()
    keeper = threading.Thread(target=_keep, args=(folder, key, program), name=KEEPER)
    keeper.start()  # Python waits for it before it ends
    return program


def finish_keeping() -> None:
    """Wait until all programs of this process that are to be kept are."""
    for thread in threading.enumerate():
        if thread.name == KEEPER:
            thread.join()


def _loaded(folder: Path, key: str, threads: int) -> Program | None:
    """Return the program of a key, None if there is none that is whole and nobody else's."""
    path = folder / key[:2] / key[2:]
    if not path.exists() or (why := why_not_private(path)) is not None:
        if path.exists():
            log.warning("the kept program '%s' is not used: %s", path, why)
        return None
    try:
        program = load(path, threads=threads, strict=True)
        check(program.description)
    except GraftError as error:
        log.info("a kept program is compiled anew: %s", error)
        return None
    os.utime(path)
    return program


def _keep(folder: Path, key: str, program: Program) -> None:
    """Keep a program; that it cannot be is no error."""
    try:
        with private_folder(folder, make=True) as inner, inner_folder(key[:2], inner, make=True):
            save(program.description, folder / key[:2] / key[2:])
        KernelCache(folder, PROGRAM_BYTES).trim()
    except (OSError, GraftError) as error:
        log.info("a program is not kept: %s", error)


def _key(model: ir.Model, facts: str, digests: Digests) -> str:
    """Return the digest of a model and of what else its program depends on."""
    digest = hashlib.sha256(f"{facts}\0{torch.__version__}\0{sys.version}\0{_machine()}".encode())
    graph = model.graph
    for value in (*graph.inputs, *graph.outputs):
        digest.update(f"{value.name}:{value.dtype}:{value.shape}\n".encode())
    for node in graph:
        inputs, outputs = ([one.name if one else "" for one in values] for values in (node.inputs, node.outputs))
        attributes = sorted((one.name, str(one.type), repr(one.value)) for one in node.attributes.values())
        digest.update(repr((node.domain, node.op_type, node.name, inputs, outputs, attributes)).encode())
    for name, value in graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None
        digest.update(f"{name}:{tensor.dtype}:{tensor.shape}\n".encode())
        digest.update(digests.of(tensor.numpy()))
    return digest.hexdigest()


@cache
def _machine() -> str:
    tuned = tuned_database()
    facts = None if tuned is None or not tuned.exists() else tuned.stat().st_mtime_ns
    return f"{described(host_machine())} {facts}"


def _homes() -> tuple[str, ...]:
    """Return the folders of the packages that Graft and the plugins are in, or their files; none is imported."""
    sources = plugins().sources()
    found = [source.value for source in sources if source.is_file]
    for name in {"graft", *(one.value.partition(":")[0].partition(".")[0] for one in sources if not one.is_file)}:
        spec = find_spec(name) if name else None
        if spec is not None:
            found += spec.submodule_search_locations or [str(spec.origin)]
    return tuple(sorted(found))


@cache
def _files(homes: tuple[str, ...]) -> tuple[str, ...]:
    """Return each file of packages with its size and time."""
    found = []
    for home in homes:
        for folder, folders, files in os.walk(home, followlinks=True):
            folders[:] = [one for one in folders if one != "__pycache__"]
            found += [_stamp(Path(folder, file)) for file in files]
        found += [_stamp(Path(home))] if os.path.isfile(home) else []
    return tuple(found)


def _stamp(file: Path) -> str:
    facts = file.stat()
    return f"{file}:{facts.st_size}:{facts.st_mtime_ns}"
