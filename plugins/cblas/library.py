"""Where a BLAS with the C interface is: OpenBLAS, as Debian and others install it."""

from __future__ import annotations

import ctypes

from graft.plugins.c_libraries import missing_library, opened

NAME = "libopenblas.so.0"
INSTALL = "apt-get install libopenblas-dev"


def missing() -> str:
    """Return what to install, "" where OpenBLAS is there: the note of `graft backends list`."""
    return "" if missing_library((NAME,)) is None else f"OpenBLAS is not installed; {INSTALL}"


def version() -> str:
    """Return what OpenBLAS says of itself, "" if it is not here."""
    library = opened(NAME)
    if not isinstance(library, ctypes.CDLL) or not hasattr(library, "openblas_get_config"):
        return ""
    library.openblas_get_config.restype = ctypes.c_char_p
    return f"{library.openblas_get_config().decode()} ({NAME})"
