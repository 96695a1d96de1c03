"""What is asked of OpenVINO, here or in an interpreter of its own: a model compiled, a blob loaded and run."""

import io
import threading
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=1)
def core():
    """Return OpenVINO's own state, which is made once."""
    import openvino

    return openvino.Core()


def version():
    """Return the version of OpenVINO; raise RuntimeError for one without the calls that are made here."""
    import openvino

    number = openvino.__version__.partition("-")[0]
    if tuple(map(int, number.split(".")[:2])) < (2025, 0):
        raise RuntimeError(f"OpenVINO {number} is too old; pip install 'openvino>=2025.0'")
    return f"OpenVINO {number}"


def settings(options):
    """Return the properties of a compilation: float32 is computed in float32 unless the user says otherwise."""
    found = {"INFERENCE_PRECISION_HINT": options["precision"], "PERFORMANCE_HINT": "LATENCY"}
    if options["device"] == "CPU":
        found["NUM_STREAMS"] = 1
        if options["threads"]:
            found["INFERENCE_NUM_THREADS"] = options["threads"]
    return found


def devices():
    """Return the devices that OpenVINO finds here."""
    return core().available_devices


def compile(model, options):
    """Return a model compiled for a device, as OpenVINO keeps it."""
    if options["device"] not in devices():
        raise RuntimeError(f"OpenVINO finds no device {options['device']} here, only {', '.join(devices())}")
    compiled = core().compile_model(core().read_model(model), options["device"], settings(options))
    return compiled.export_model().getvalue()


class Memory:
    """The memory of an array, without keeping the array.

    A request keeps its last inputs; these keep the program that they belong to, and that would keep the request.
    """

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__


def load(blob, options):
    """Return the function of a compiled model; each thread that calls it has a request of its own."""
    compiled = core().import_model(io.BytesIO(blob), options["device"], settings(options))
    outputs, own = compiled.outputs, threading.local()

    def run(arrays):
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        # Tensors lie where Graft has them, but scalars, which OpenVINO shares only if they may be written. Results stay
        # valid until this thread's next call.
        arrays = [np.asarray(Memory(one)) if one.ndim else one.copy() for one in arrays]
        results = own.request.infer(arrays, share_inputs=True, share_outputs=True)
        return [np.asarray(results[one]) for one in outputs]

    return run
