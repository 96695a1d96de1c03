"""NVRTC, NVIDIA's compiler of CUDA C as a library: text in, cubins and PTX out. It needs no device."""

from __future__ import annotations

import ctypes

from graft.core.machine.machine import Machine
from graft.errors import CompileError
from graft.plugins.cuda.source.expressions import PRELUDE
from graft.plugins.cuda.wheels import opened

INSTALL = "pip install nvidia-cuda-nvrtc-cu12"
MISSING = f"NVRTC is not installed; {INSTALL}"
VERSIONS = ("12", "13", "11.2")
FLAGS = ("--std=c++17", "--extra-device-vectorization", "-default-device")


def library() -> ctypes.CDLL | None:
    """Return NVRTC, None where it is not installed."""
    return opened("nvrtc", VERSIONS)


def version() -> str:
    """Return the version, such as ``NVRTC 12.9``, or that there is none."""
    found = library()
    if found is None:
        return "no NVRTC"
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    found.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"NVRTC {major.value}.{minor.value}"


def compiled(text: str, machine: Machine, name: str, *, form: str, file: str = "kernels.cu") -> bytes:
    """Return the ``cubin`` or ``ptx`` of CUDA C for a machine, else raise CompileError with what NVRTC says."""
    found = library()
    if found is None:
        raise CompileError(f"there is no NVRTC to compile '{name}' with; {INSTALL}")
    arch = machine.cpu if form == "cubin" else machine.cpu.replace("sm_", "compute_")
    program = ctypes.c_void_p()
    prelude = PRELUDE.read_bytes()
    _check(found, found.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), file.encode(), 1, (ctypes.c_char_p * 1)(prelude),
        (ctypes.c_char_p * 1)(PRELUDE.name.encode())), name)  # fmt: skip
    try:
        options = [flag.encode() for flag in (*FLAGS, f"--gpu-architecture={arch}")]
        status = found.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status:
            said = _text(found, "ProgramLog", program).rstrip(b"\0").decode(errors="replace").strip()
            raise CompileError(
                f"NVRTC refused the code of '{name}' for {arch}: {said or _fault(found, status)}", function=name
            )
        data = _text(found, "CUBIN" if form == "cubin" else "PTX", program)
    finally:
        found.nvrtcDestroyProgram(ctypes.byref(program))
    return data if form == "cubin" else data.rstrip(b"\0")


def _text(found: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t(0)
    _check(found, getattr(found, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    data = ctypes.create_string_buffer(max(1, size.value))
    _check(found, getattr(found, f"nvrtcGet{what}")(program, data), what)
    return data.raw[: size.value]


def _check(found: ctypes.CDLL, status: int, name: str) -> None:
    if status:
        raise CompileError(f"NVRTC fails for '{name}': {_fault(found, status)}")


def _fault(found: ctypes.CDLL, status: int) -> str:
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    return f"{found.nvrtcGetErrorString(status).decode()} ({status})"
