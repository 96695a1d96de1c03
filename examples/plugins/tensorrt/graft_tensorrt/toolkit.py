"""What is asked of TensorRT, here or in an interpreter of its own: an engine built, refitted, run.

Devices, their memory and streams are those of CUDA's driver, by its C functions: nothing of CUDA's has to be installed.
"""

import ctypes
import json
import threading
from contextlib import contextmanager, suppress
from functools import cache

import numpy as np

LEAST = (10, 8)
"""The first version with all calls that are made here."""
MAJOR, MINOR = 75, 76
"""The attributes of a device that give its compute capability (cuda.h, CUdevice_attribute)."""


def vendor():
    """Return TensorRT's module; raise RuntimeError where its libraries are missing, or it is too old."""
    try:
        import tensorrt
    except (ImportError, OSError) as error:
        raise RuntimeError(f"TensorRT cannot be imported: {error}; pip install 'tensorrt-cu12>=10.8'") from error
    if tuple(map(int, tensorrt.__version__.split(".")[:2])) < LEAST:
        raise RuntimeError(f"TensorRT {tensorrt.__version__} is too old; pip install 'tensorrt-cu12>=10.8'")
    return tensorrt


def version(number):
    """Return what an engine belongs to: the version of TensorRT, and the device."""
    return f"TensorRT {vendor().__version__} on {device_of(number)}"


def compile(model, options):
    """Return the engine of a model behind the names of its tensors; with `refit`, one without weights."""
    trt = vendor()
    logger = trt.Logger(trt.Logger.WARNING)
    with device_of(options["device"]).current():
        builder = trt.Builder(logger)
        # Types are those that the model says; from version 11 on they always are.
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, logger)
        if not parser.parse(model):
            raise RuntimeError(errors_of(parser))
        made = builder.build_serialized_network(network, configured(trt, builder, options))
    if made is None:
        raise RuntimeError("TensorRT builds no engine; what it printed says why")
    names = {"inputs": [network.get_input(place).name for place in range(network.num_inputs)],
             "outputs": [network.get_output(place).name for place in range(network.num_outputs)]}  # fmt: skip
    return json.dumps(names).encode() + b"\n" + bytes(made)


def configured(trt, builder, options):
    """Return how an engine is built: factors of float32 stay float32 and NaN is NaN unless the user says otherwise."""
    config = builder.create_builder_config()
    config.builder_optimization_level = options["level"]
    config.set_flag(trt.BuilderFlag.STRICT_NANS)
    if options["precision"] == "f32":
        config.clear_flag(trt.BuilderFlag.TF32)
    if options["refit"]:
        config.set_flag(trt.BuilderFlag.REFIT)  # else engines without weights take those alone that they had
        config.set_flag(trt.BuilderFlag.STRIP_PLAN)
    return config


def errors_of(parser):
    """Return what a parser found wrong."""
    return "; ".join(parser.get_error(place).desc() for place in range(parser.num_errors)) or "TensorRT gives no reason"


def load(blob, options):
    """Return the function of an engine; each thread that calls it has a stream and memory of its own.

    ``options["model"]`` is there where the engine has no weights: the model that has them.
    """
    trt, device, own = vendor(), device_of(options["device"]), threading.local()
    logger = trt.Logger(trt.Logger.WARNING)
    text, _, made = blob.partition(b"\n")
    names = json.loads(text)
    with device.current():
        engine = trt.Runtime(logger).deserialize_cuda_engine(made)
        if engine is None:
            raise RuntimeError("TensorRT does not take the engine, which is for one version and one kind of device")
        if "model" in options:
            refit(trt, engine, options["model"], logger)

    def run(arrays):
        if not hasattr(own, "request"):
            own.request = Request(trt, device, engine, names)
        return own.request.run(arrays)

    return run


def refit(trt, engine, model, logger):
    """Give an engine the weights of a model."""
    refitter = trt.Refitter(engine, logger)
    parser = trt.OnnxParserRefitter(refitter, logger)
    if not parser.refit_from_bytes(model):
        raise RuntimeError(f"the weights do not fit the engine: {errors_of(parser)}; refit=false builds one for them")
    if not refitter.refit_cuda_engine():
        missing = ", ".join(refitter.get_missing_weights()) or "none is missing, what TensorRT printed says why"
        raise RuntimeError(f"the engine lacks weights: {missing}; refit=false builds one that has them")


class Request:
    """What a thread runs an engine with: a context, a stream, memory of the device for every tensor."""

    def __init__(self, trt, device, engine, names):
        self._device, self._names, self._memory, self._stream = device, names, {}, None
        with device.current():
            self._context = engine.create_execution_context()
            if self._context is None:
                raise RuntimeError("TensorRT gives no context to run in: the device may lack memory")
            self._stream = Stream()
            self._results = [(tuple(engine.get_tensor_shape(name)), np.dtype(trt.nptype(engine.get_tensor_dtype(name))))
                             for name in names["outputs"]]  # fmt: skip
            for name in (*names["inputs"], *names["outputs"]):
                size = int(np.prod(engine.get_tensor_shape(name), dtype=np.int64))
                one = Memory(size * np.dtype(trt.nptype(engine.get_tensor_dtype(name))).itemsize)
                self._memory[name] = one
                self._context.set_tensor_address(name, one.address.value)

    def run(self, arrays):
        """Return the results of a call, in memory of their own."""
        given = [np.ascontiguousarray(one) for one in arrays]  # scalars become vectors of the same bytes
        results = [np.empty(shape, dtype) for shape, dtype in self._results]
        with self._device.current():
            for place, name in enumerate(self._names["inputs"]):
                self._memory[name].write(given[place], self._stream)
            done = self._context.execute_async_v3(self._stream.handle.value)
            for place, name in enumerate(self._names["outputs"]):
                self._memory[name].read(results[place], self._stream)
            self._stream.finish()
        if not done:
            raise RuntimeError("TensorRT does not run the engine; what it printed says why")
        return results

    def __del__(self):
        with suppress(RuntimeError), self._device.current():  # where the process ends, the driver may have
            self._context = None
            for one in (*self._memory.values(), *filter(None, [self._stream])):
                one.free()


@cache
def library():
    """Return the driver's library, started; raise RuntimeError where there is none, or it cannot start."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError("no driver of NVIDIA's: libcuda.so.1 cannot be opened") from error
    _checked(found, "cuInit", 0)
    return found


def _checked(found, name, *arguments):
    status = getattr(found, name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        found.cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()}")


def call(name, *arguments):
    """Call a function of the driver; raise RuntimeError with its words where it fails."""
    _checked(library(), name, *arguments)


@cache
def device_of(number):
    """Return a device, which a process opens once; raise RuntimeError where there is none of that number."""
    return Device(number)


def fault(number):
    """Return why programs cannot run on a device, None if they can."""
    try:
        device_of(number)
    except RuntimeError as error:
        return str(error)
    return None


class Device:
    """A device with the context that all libraries of a process share."""

    def __init__(self, number):
        count, self._handle, self._context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= number < count.value:
            raise RuntimeError(f"there is no device {number}: CUDA's driver counts {count.value} here, from 0")
        call("cuDeviceGet", ctypes.byref(self._handle), number)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._handle)

    def __str__(self):
        name, (major, minor) = ctypes.create_string_buffer(256), (ctypes.c_int(), ctypes.c_int())
        call("cuDeviceGetName", name, len(name), self._handle)
        for number, attribute in ((major, MAJOR), (minor, MINOR)):
            call("cuDeviceGetAttribute", ctypes.byref(number), attribute, self._handle)
        return f"{name.value.decode()} (compute capability {major.value}.{minor.value})"

    @contextmanager
    def current(self):
        """Make this the device of the calling thread, and the one before it afterwards."""
        call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


class Memory:
    """Bytes of the current device, with copies in the order of a stream."""

    def __init__(self, size):
        self.address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(size))

    def write(self, array, stream):
        """Copy an array to the device."""
        call("cuMemcpyHtoDAsync_v2", self.address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes),
             stream.handle)  # fmt: skip

    def read(self, array, stream):
        """Copy to an array, which has the bytes when the stream is done."""
        call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(array.ctypes.data), self.address, ctypes.c_size_t(array.nbytes),
             stream.handle)  # fmt: skip

    def free(self):
        """Give the bytes back."""
        call("cuMemFree_v2", self.address)


class Stream:
    """What a device does in order."""

    def __init__(self):
        self.handle = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(self.handle), 1)  # CU_STREAM_NON_BLOCKING

    def finish(self):
        """Wait until all is done; raise RuntimeError where any of it failed."""
        call("cuStreamSynchronize", self.handle)

    def free(self):
        """Give the stream back."""
        call("cuStreamDestroy_v2", self.handle)
