"""The runtime as one object, and as a library for C, from the C sources beside this package; kept for the next time."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import graft.runtime
from graft.errors import ArtifactError, GraftError
from graft.runtime.export.folder import write_files
from graft.runtime.procedure import ABI_VERSION
from graft.runtime.system.c_compiler import c_compiler, run_in, run_tool, version_of
from graft.runtime.system.cache_directory import cache_directory
from graft.runtime.system.files import write
from graft.runtime.system.private import keep, read_kept

log = logging.getLogger("graft.export")

SOURCES = Path(graft.runtime.__file__).resolve().parent / "native"
FLAGS = (
    "-std=c11", "-D_GNU_SOURCE", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-ffunction-sections",
    "-fdata-sections", "-pthread", f"-I{SOURCES / 'include'}", f"-I{SOURCES / 'src'}",
    f"-ffile-prefix-map={SOURCES}=graft",
)  # fmt: skip
"""What is made depends on the sources and the compiler, not on where they lie."""
_PKG_CONFIG = """\
Name: graft
Description: Graft's runtime: loads and runs compiled models
Version: {version}
Cflags: -I{include}
Libs: -L{folder} -lgraft_runtime -pthread -ldl -lm
"""
_CMAKE = """\
include(CMakeFindDependencyMacro)
find_dependency(Threads)
add_library(graft::runtime STATIC IMPORTED)
set_target_properties(graft::runtime PROPERTIES
  IMPORTED_LOCATION "{folder}/libgraft_runtime.a"
  INTERFACE_INCLUDE_DIRECTORIES "{include}"
  INTERFACE_LINK_LIBRARIES "Threads::Threads;${{CMAKE_DL_LIBS}};m")
"""
_REFUSED = "refused the sources of Graft's runtime"


def runtime_object(directory: Path | None) -> bytes:
    """Return the runtime as a relocatable object, from ``directory`` if it is there; else compile and keep it there.

    Raises CompileError for what the compiler refuses.
    """
    sources = sorted((SOURCES / "src").glob("*/*.c"))
    key = _key(sources)
    kept = None if directory is None else _kept(directory, key)
    if kept is not None:
        return kept
    with TemporaryDirectory(prefix="graft-") as name:
        folder = Path(name)
        count = os.cpu_count() or 1
        parts = [sources[i::count] for i in range(count) if sources[i::count]]
        with ThreadPoolExecutor(count) as pool:
            done = [pool.submit(run_in, folder, [*FLAGS, "-c", *map(str, part)], _REFUSED) for part in parts]
            for future in done:
                future.result()
        objects = [f"{source.stem}.o" for source in sources]
        run_in(folder, ["-r", "-nostdlib", "-o", "runtime.o", *objects], "cannot join the objects of Graft's runtime")
        data = (folder / "runtime.o").read_bytes()
    if directory is not None:
        _keep(directory, key, data)
    return data


def library_dir() -> str:
    """Return a folder with ``libgraft_runtime.a``, ``graft.pc`` and ``graft-config.cmake``, made if it is not there.

    ``PKG_CONFIG_PATH`` and CMake's ``-Dgraft_DIR`` take it as it is. Raises CompileError where there is no C compiler
    or it refuses, ArtifactError where the folder cannot be written.
    """
    cache = cache_directory()
    if cache is None:
        raise ArtifactError(
            "there is no cache directory for the library; set HOME or XDG_CACHE_HOME to an absolute path"
        )
    folder = cache / "library" / _key(sorted((SOURCES / "src").glob("*/*.c")))[:16]
    if not all((folder / name).exists() for name in ("libgraft_runtime.a", "graft.pc", "graft-config.cmake")):
        with TemporaryDirectory(prefix="graft-") as name:
            write(Path(name) / "graft_runtime.o", runtime_object(cache / "kernels"), "object", ArtifactError)
            run_tool(Path(name), "ar", ["rcs", "libgraft_runtime.a", "graft_runtime.o"])
            library = (Path(name) / "libgraft_runtime.a").read_bytes()
        values = {"include": graft.runtime.include_dir(), "folder": folder, "version": ABI_VERSION}
        texts = {"graft.pc": _PKG_CONFIG, "graft-config.cmake": _CMAKE}
        write_files(folder, {"libgraft_runtime.a": [library]} | {k: text.format(**values) for k, text in texts.items()})
    return str(folder)


def _key(sources: Sequence[Path]) -> str:
    digest = hashlib.sha256(repr((c_compiler(), version_of(c_compiler()), FLAGS)).encode())
    for path in (*sources, *sorted((SOURCES / "src").glob("*/*.h")), *sorted((SOURCES / "include").rglob("*.h"))):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _kept(directory: Path, key: str) -> bytes | None:
    """Return what is kept in a folder of the cache of kernels, whose rules of privacy hold; None if it is not whole."""
    try:
        data = read_kept(directory, key)
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(directory: Path, key: str, data: bytes) -> None:
    try:
        keep(directory, key, "object", hashlib.sha256(data).digest() + data)
    except (OSError, GraftError) as error:
        log.info("the object of the runtime is not kept: %s", error)
