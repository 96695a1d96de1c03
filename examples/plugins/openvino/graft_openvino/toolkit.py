"""What is asked of OpenVINO, here or in an interpreter of its own: a model compiled, a blob loaded and run."""

import io
import threading
from functools import lru_cache, partial

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


def settings(options, threads):
    """Return the properties of a compilation: float32 is computed in float32 unless the user says otherwise."""
    found = {"INFERENCE_PRECISION_HINT": options["precision"], "PERFORMANCE_HINT": "LATENCY"}
    if options["device"] == "CPU":
        found |= {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    return found


def devices():
    """Return the devices that OpenVINO finds here."""
    return core().available_devices


def compile(model, options):
    """Return a model compiled for a device, as OpenVINO keeps it, behind the number of its threads."""
    if options["device"] not in devices():
        raise RuntimeError(f"OpenVINO finds no device {options['device']} here, only {', '.join(devices())}")
    read = core().read_model(model)
    if options["nan"] == "keep":
        keep_nan(read)
    threads = options["threads"] or options["program_threads"]
    compiled = core().compile_model(read, options["device"], settings(options, threads))
    return threads.to_bytes(4, "little") + compiled.export_model().getvalue()


def keep_nan(model):
    """Write limits by comparisons, which a NaN passes: a maximum of a NaN and a number is the number in OpenVINO."""
    import openvino.opset13 as ops

    number = partial(ops.constant, dtype=np.float32)
    for node in model.get_ordered_ops():
        kind, x = node.get_type_name(), node.input_value(0) if node.get_input_size() else None
        if kind == "Relu":
            made = ops.select(ops.less(x, number(0)), number(0), x)
        elif kind in ("Maximum", "Minimum"):  # of Clip, whose bound comes first
            bound, x = node.input_values()
            is_beyond = ops.less(*((x, bound) if kind == "Maximum" else (bound, x)))  # greater is true of a NaN
            made = ops.select(is_beyond, bound, x)
        elif kind == "Softmax":
            # NaN where a row has NaN or infinity, or nothing above -infinity
            axis = ops.constant([node.get_attributes()["axis"]], dtype=np.int64)
            largest, least = number(np.finfo(np.float32).max), number(np.finfo(np.float32).min)
            fault = ops.reduce_sum(ops.select(ops.less_equal(x, largest), number(0), number(np.nan)), axis, True)
            finite = ops.greater_equal(ops.reduce_max(x, axis, True), least)
            fault = ops.select(finite, fault, number(np.nan))
            made = ops.add(ops.softmax(x, node.get_attributes()["axis"]), fault)
        else:
            continue
        node.output(0).replace(made.output(0))


class Memory:
    """The memory of an array, without keeping the array.

    A request keeps its last inputs; these keep the program that they belong to, and that would keep the request.
    """

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__


def load(blob, options):
    """Return the function of a compiled model; each thread that calls it has a request of its own."""
    threads = int.from_bytes(blob[:4], "little")
    compiled = core().import_model(io.BytesIO(blob[4:]), options["device"], settings(options, threads))
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
