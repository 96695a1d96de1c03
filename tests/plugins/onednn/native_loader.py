"""The native loader of the oneDNN plugin driven through its C interface alone: no executor, no artifact."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from graft.runtime.procedure import Module


class DLDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class NamedTensor(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(DLTensor)))


class ModuleSource(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_char_p),
        ("data", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("constants", ctypes.POINTER(NamedTensor)),
        ("constant_count", ctypes.c_size_t),
        ("thread_count", ctypes.c_int32),
    )


LIBC = ctypes.CDLL(None)

# Variadic in C; on the platforms tested, a callee that reads only the format and integer registers may be declared so.
FAIL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_void_p] * 6)


class LoaderHost(ctypes.Structure):
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("fail", FAIL),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
    )


LOAD = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.POINTER(LoaderHost),
    ctypes.POINTER(ModuleSource),
    ctypes.POINTER(ctypes.c_void_p),
)
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.POINTER(DLTensor)),
    ctypes.POINTER(ctypes.POINTER(DLTensor)),
)
LOOKUP = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.POINTER(LoaderHost),
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
)
UNLOAD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Loader(ctypes.Structure):
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("kind", ctypes.c_char_p),
        ("user", ctypes.c_void_p),
        ("load", LOAD),
        ("lookup", LOOKUP),
        ("unload", UNLOAD),
    )


def tensor(array: np.ndarray) -> DLTensor:
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    result = DLTensor(array.ctypes.data, DLDevice(1, 0), array.ndim, DLDataType(2, 32, 1), shape, None, 0)
    result.keep = (array, shape)
    return result


class LoadedModule:
    """A loaded module: call it with arrays, get the outputs whose shapes are ``output_shapes``."""

    def __init__(self, path: str, module: Module, threads: int = 1) -> None:
        self.library = ctypes.CDLL(path)
        self.library.graft_loader.restype = ctypes.POINTER(Loader)
        self.library.graft_onednn_describe.restype = ctypes.c_char_p
        self.loader = self.library.graft_loader().contents
        self.messages: list[str] = []
        self.fail = FAIL(self._fail)
        self.host = LoaderHost(1, self.fail, -1, -1)
        self.constants = {name: np.ascontiguousarray(array) for name, array in module.constants.items()}
        self.tensors = [tensor(array) for array in self.constants.values()]
        rows = [
            NamedTensor(name.encode(), ctypes.pointer(row))
            for name, row in zip(self.constants, self.tensors, strict=True)
        ]
        self.source = ModuleSource(
            module.name.encode(),
            module.kind.encode(),
            module.data,
            len(module.data),
            (NamedTensor * max(len(rows), 1))(*rows),
            len(rows),
            threads,
        )
        self.module = ctypes.c_void_p()
        code = self.loader.load(None, ctypes.byref(self.host), ctypes.byref(self.source), ctypes.byref(self.module))
        if code != 0:
            raise RuntimeError(self.messages[-1])
        self.entry, self.state = ctypes.c_void_p(), ctypes.c_void_p()
        code = self.loader.lookup(
            None,
            ctypes.byref(self.host),
            self.module,
            module.functions[0].encode(),
            ctypes.byref(self.entry),
            ctypes.byref(self.state),
        )
        if code != 0:
            raise RuntimeError(self.messages[-1])
        self.function = RUN(self.entry.value)

    def _fail(self, host: int, text: bytes, *arguments: int | None) -> int:
        buffer = ctypes.create_string_buffer(1024)
        LIBC.snprintf(buffer, ctypes.c_size_t(1024), text, *[ctypes.c_void_p(one) for one in arguments])
        self.messages.append(buffer.value.decode())
        return 3

    def __call__(self, inputs: Sequence[np.ndarray], output_shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        given = [tensor(np.ascontiguousarray(array, np.float32)) for array in inputs]
        made = [np.full(shape, np.nan, np.float32) for shape in output_shapes]
        outputs = [tensor(array) for array in made]
        code = self.function(None, self.state, _pointers(given), _pointers(outputs))
        assert code == 0
        return made

    def steps(self) -> list[list[str]]:
        """Return the rows of the module's description: kernel or "reorder", node, implementation."""
        text: bytes = self.library.graft_onednn_describe(self.module)
        return [line.split("\t") for line in text.decode().splitlines()[1:]]

    def close(self) -> None:
        self.loader.unload(None, self.module)


def _pointers(tensors: list[DLTensor]) -> ctypes.Array:
    return (ctypes.POINTER(DLTensor) * max(len(tensors), 1))(*[ctypes.pointer(one) for one in tensors])
