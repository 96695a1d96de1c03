"""nvJitLink, NVIDIA's linker as a library: PTX in, a cubin out, where `ptxas` is not installed. It needs no device."""

from __future__ import annotations

import ctypes

from graft.core.machine.machine import Machine
from graft.errors import CompileError
from graft.plugins.cuda.wheels import opened

INSTALL = "pip install nvidia-nvjitlink-cu12"
VERSIONS = ("12", "13")
PTX = 2
"""The number of PTX among the kinds of what is linked (nvJitLink.h)."""


def library() -> ctypes.CDLL | None:
    """Return nvJitLink, None where it is not installed."""
    return opened("nvJitLink", VERSIONS)


def version() -> str:
    """Return the version, such as ``nvJitLink 12.9``, "" if there is none."""
    found = library()
    if found is None:
        return ""
    major, minor = ctypes.c_uint(0), ctypes.c_uint(0)
    _function(found, "Version")(ctypes.byref(major), ctypes.byref(minor))
    return f"nvJitLink {major.value}.{minor.value}"


def linked(ptx: str, machine: Machine, name: str) -> bytes:
    """Return the cubin of PTX; raise CompileError with what nvJitLink says if it refuses."""
    found = library()
    if found is None:
        raise CompileError(f"there is no nvJitLink to assemble '{name}' with; {INSTALL}")
    handle, options = ctypes.c_void_p(), (f"-arch={machine.cpu}".encode(),)
    status = _function(found, "Create")(
        ctypes.byref(handle), ctypes.c_uint32(len(options)), (ctypes.c_char_p * len(options))(*options)
    )
    if status:
        raise CompileError(f"nvJitLink does not assemble for {machine.cpu}: status {status}", function=name)
    try:
        data = ptx.encode() + b"\0"
        status = _function(found, "AddData")(handle, PTX, data, ctypes.c_size_t(len(data)), f"{name}.ptx".encode())
        status = status or _function(found, "Complete")(handle)
        if status:
            said = _text(found, handle, "ErrorLog").rstrip(b"\0").decode(errors="replace").strip()
            raise CompileError(f"nvJitLink refused the code of '{name}' (status {status}): {said}", function=name)
        return _text(found, handle, "LinkedCubin")
    finally:
        _function(found, "Destroy")(ctypes.byref(handle))


def _text(found: ctypes.CDLL, handle: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t(0)
    _function(found, f"Get{what}Size")(handle, ctypes.byref(size))
    data = ctypes.create_string_buffer(max(1, size.value))
    _function(found, f"Get{what}")(handle, data)
    return data.raw[: size.value]


def _function(found: ctypes.CDLL, name: str) -> ctypes._NamedFuncPointer:
    """Return a function, whose symbol has the library's version behind its name, or had in the first ones."""
    versions = (f"__nvJitLink{name}_{major}_{minor}" for major in VERSIONS for minor in range(9, -1, -1))
    for symbol in (f"nvJitLink{name}", *versions):
        if hasattr(found, symbol):
            function = getattr(found, symbol)
            function.restype = ctypes.c_int
            return function  # type: ignore[no-any-return]
    raise CompileError(f"nvJitLink has no function nvJitLink{name}; update it: {INSTALL}")
