"""CUDA's driver without a device: its C functions over memory of the process, with the numbers of its errors."""

import ctypes
from itertools import count

NAMES = ("Made-up A", "Made-up B")


class Driver:
    """What `ctypes.CDLL` gives for the driver's library; counts what is held."""

    def __init__(self):
        self.current, self.memory, self.streams, self._numbers = [], {}, set(), count(1)
        self.fails = None

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: 2 if name == self.fails else getattr(self, f"_{name}")(*arguments) or 0

    def _cuGetErrorString(self, status, text):
        text._obj.value = b"out of memory"

    def _cuInit(self, flags):
        pass

    def _cuDeviceGetCount(self, found):
        found._obj.value = len(NAMES)

    def _cuDeviceGet(self, found, number):
        found._obj.value = number

    def _cuDevicePrimaryCtxRetain(self, found, handle):
        found._obj.value = 100 + handle.value

    def _cuDeviceGetName(self, text, size, handle):
        text.value = NAMES[handle.value].encode()

    def _cuDeviceGetAttribute(self, found, attribute, handle):
        found._obj.value = {75: 9, 76: 0}[attribute]

    def _cuCtxPushCurrent_v2(self, context):
        self.current.append(context.value)

    def _cuCtxPopCurrent_v2(self, context):
        context._obj.value = self.current.pop()

    def _cuMemAlloc_v2(self, found, size):
        whole = (ctypes.c_char * size.value)()
        found._obj.value = ctypes.addressof(whole)
        self.memory[found._obj.value] = whole

    def _cuMemFree_v2(self, address):
        del self.memory[address.value]

    def _cuMemcpyHtoDAsync_v2(self, target, source, size, stream):
        assert stream.value in self.streams and size.value <= len(self.memory[target.value])
        ctypes.memmove(target.value, source.value, size.value)

    def _cuMemcpyDtoHAsync_v2(self, target, source, size, stream):
        assert stream.value in self.streams and size.value <= len(self.memory[source.value])
        ctypes.memmove(target.value, source.value, size.value)

    def _cuStreamCreate(self, found, flags):
        assert flags == 1
        found._obj.value = next(self._numbers)
        self.streams.add(found._obj.value)

    def _cuStreamSynchronize(self, stream):
        assert stream.value in self.streams

    def _cuStreamDestroy_v2(self, stream):
        self.streams.remove(stream.value)


driver = Driver()
