"""What vendors' compilers made, kept on disk by content for any process: they take minutes.

It stands beside the kernels that Graft compiled (`graft.plugins.codegen.kernel_cache`), is cleared with them, and goes
with them when there are too many bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from graft.errors import GraftError
from graft.plugins.codegen.kernel_cache import KernelCache
from graft.runtime.system.private import keep, read_kept

DIGEST = 32


def key_of(parts: Iterable[bytes]) -> str:
    """Return what a result is known by: a digest of everything that it depends on."""
    digest = hashlib.sha256(b"graft-vendor-2")
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def recalled(directory: Path | None, key: str) -> bytes | None:
    """Return what was made under a key, None where it is not there, is damaged, or might be somebody else's."""
    if directory is None or not key:
        return None
    with suppress(OSError):
        data = read_kept(directory / "kernels", key)
        if hashlib.sha256(data[DIGEST:]).digest() == data[:DIGEST]:
            return data[DIGEST:]
    return None


def remembered(directory: Path | None, parts: Iterable[bytes], make: Callable[[], bytes]) -> bytes:
    """Return what was made of the same parts before, in any process, else what is made now.

    ``parts`` are everything that the result depends on: the model, options, the compiler's version. ``directory`` is
    `CompileOptions.cache`, None to keep nothing. What is damaged, or might be somebody else's, is made again.
    """
    if directory is None:
        return make()
    key, folder = key_of(parts), directory / "kernels"
    if (known := recalled(directory, key)) is not None:
        return known
    made = make()
    with suppress(OSError, GraftError):
        keep(folder, key, "compiled region", hashlib.sha256(made).digest() + made)
        KernelCache(folder).trim()
    return made
