"""Where cuBLASLt is on this machine. Needs no compiler: loaders use it where a program is deployed."""

from __future__ import annotations

import ctypes
import os

from graft.plugins.cuda.module import built
from graft.plugins.cuda.wheels import opened
from graft.runtime.loaders import NativeLoader

INSTALL = "pip install nvidia-cublas-cu12"
MISSING = f"cuBLASLt is not installed; {INSTALL}"
VERSIONS = ("12", "13", "11")


def library() -> ctypes.CDLL | None:
    """Return cuBLASLt, None where there is none; because it is open then, the native loader finds this copy."""
    wanted = os.environ.get("GRAFT_CUBLASLT")
    if wanted:
        return ctypes.CDLL(wanted) if os.path.exists(wanted) else None
    return opened("cublasLt", VERSIONS)


def version() -> str:
    """Return the version, such as ``cuBLASLt 12.9.1``, or what to install."""
    found = library()
    if found is None:
        return MISSING
    found.cublasLtGetVersion.restype = ctypes.c_size_t
    number = int(found.cublasLtGetVersion())
    return f"cuBLASLt {number // 10000}.{number // 100 % 100}.{number % 100}"


def cublas_loader() -> NativeLoader:
    """Return the loader of kind ``json:cublas``, which finds the library that is opened here.

    It has the device as well, for programs without generated kernels; with them the device is that of `native_loader`,
    which knows what was launched last.
    """
    library()
    return NativeLoader("json:cublas", built("_cublas"), device="cuda", holds_code=False)
