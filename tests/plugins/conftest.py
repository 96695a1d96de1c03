"""A stand-in for the native runtime, so that generated code is tested by itself."""

import ctypes
import mmap
import struct
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graft.core.machine.target import host_target
from graft.core.tensor_ir.ir import Function
from graft.plugins.llvm.emit import compile_functions, emit_ir, object_of
from graft.plugins.llvm.emit_function import BRIEF
from graft.plugins.native_image import link

PARALLEL_FOR = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
TASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
SCRATCH = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Api(ctypes.Structure):
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("parallel_for", PARALLEL_FOR),
        ("scratch", SCRATCH),
    )


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Image:
    """A native image in executable memory."""

    def __init__(self, image: bytes) -> None:
        magic, version, _, offset, size, text, count = struct.unpack_from("<8sIIQQQQ", image)
        assert (magic, version, size % 4096, text % 4096) == (b"GRAFTIMG", 1, 0, 0)
        self.memory = mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.memory.write(image[offset : offset + size])
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        rows = [struct.unpack_from("<QQQ", image, 48 + 24 * number) for number in range(count)]
        self.symbols = {image[name : name + length].decode(): value for value, name, length in rows}
        self.scratch_left = 1 << 30
        self.parts: list[tuple[int, int]] = []
        self.blocks: list[np.ndarray] = []
        self.api = Api(1, ctypes.sizeof(Api), PARALLEL_FOR(self._parallel_for), SCRATCH(self._scratch))
        self.context = (ctypes.c_void_p * 1)(ctypes.addressof(self.api))

    def _parallel_for(self, context: int, count: int, grain: int, task: int, closure: int) -> int:
        half = max(count // 2, min(grain, count))
        for begin, end in ((0, half), (half, count)):
            if begin < end:
                self.parts.append((begin, end))
                status = TASK(task)(context, closure, begin, end)
                if status:
                    return int(status)
        return 0

    def _scratch(self, context: int, size: int) -> int | None:
        if size > self.scratch_left:
            return None
        self.blocks.append(np.full(size + 64, 0xFF, np.uint8))
        return int(self.blocks[-1].ctypes.data + 63 & ~63)

    def status(self, name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> int:
        """Call a function and return its status."""
        entry = ENTRY(self.address + self.symbols[name])
        lists, keep = [], []
        for arrays in (inputs, outputs):
            tensors = [_tensor(array) for array in arrays]
            keep.append(tensors)
            lists.append((ctypes.c_void_p * max(len(tensors), 1))(*(ctypes.addressof(tensor) for tensor in tensors)))
        result = int(entry(ctypes.addressof(self.context), None, *(ctypes.addressof(table) for table in lists)))
        self.blocks.clear()
        return result

    def integer_call(self, name: str, argument: int) -> int:
        """Call ``int32 name(int32)``."""
        return int(ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(self.address + self.symbols[name])(argument))


def _tensor(array: np.ndarray) -> Tensor:
    assert array.flags.c_contiguous
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    return Tensor(array.ctypes.data - 8, (1, 0), array.ndim, (0, 0, 0, 0), shape, None, 8)


def run_native(function: Function, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    image = Image(compile_functions([function], host_target()))
    text = emit_ir(function, host_target())
    if BRIEF in text and not any(np.shares_memory(one, other) for one in outputs for other in inputs):
        other = [array.copy() for array in outputs]
        fast = Image(link([object_of(text.replace(BRIEF, ""), function.name, host_target())], [function.name]))
        assert fast.status(function.name, inputs, other) == 0
    else:
        other = []
    assert image.status(function.name, inputs, outputs) == 0
    for got, wanted in zip(other, outputs, strict=False):
        kind = got.dtype if got.dtype.kind in "biu" else "float64"  # where NaN is NaN, also of types unknown to NumPy
        np.testing.assert_array_equal(got.astype(kind), wanted.astype(kind), "a brief kernel and a fast one differ")


@pytest.fixture
def run() -> Callable[[Function, Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """Compile a function for this machine and run it on arrays; a brief one in both ways."""
    return run_native


@pytest.fixture
def load_image() -> type[Image]:
    """The class of loaded images."""
    return Image
