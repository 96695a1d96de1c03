"""What is asked of Rockchip's toolkit, in an interpreter of its own: a model compiled, simulated, or run on a board."""

import io
import json
import os
import tempfile
import zipfile
from importlib.metadata import version as version_of

import numpy as np

LEAST, BELOW = (2, 3), (3, 0)
"""The versions whose calls are made here."""


def version():
    """Return the version of the toolkit; raise RuntimeError for one whose calls may be others."""
    number = version_of("rknn-toolkit2")
    if not LEAST <= tuple(map(int, number.split(".")[:2])) < BELOW:
        old = tuple(map(int, number.split(".")[:2])) < LEAST
        text = "too old" if old else "newer than what this plugin was written for"
        raise RuntimeError(f"rknn-toolkit2 {number} is {text}; pip install 'rknn-toolkit2>=2.3,<3'")
    return f"rknn-toolkit2 {number}"


def compile(model, options):
    """Return a file for the NPU with the model, and the samples that it was quantised by, for the simulator.

    ``options["samples"]`` are arrays, one for each input, whose first axis counts samples; none: nothing is quantised.
    """
    import onnx

    names = onnx.TensorProto.DataType.Name
    outputs = [names(one.type.tensor_type.elem_type).lower() for one in onnx.load_from_string(model).graph.output]
    with tempfile.TemporaryDirectory() as folder:
        rknn = built(model, options, options["samples"], folder)
        path = os.path.join(folder, "region.rknn")
        done(rknn.export_rknn(path), "export")
        rknn.release()
        with open(path, "rb") as file:
            made = file.read()
    samples = io.BytesIO()
    np.savez(samples, *options["samples"])
    parts = {"region.rknn": made, "model.onnx": model, "samples.npz": samples.getvalue(),
             "outputs.json": json.dumps([np.dtype(NUMPY.get(one, one)).name for one in outputs]).encode()}  # fmt: skip
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w") as file:
        for name, data in parts.items():
            file.writestr(zipfile.ZipInfo(name), data)
    return blob.getvalue()


NUMPY = {"float": "float32", "double": "float64"}
"""ONNX's names of types that are others of NumPy's."""


def load(blob, options):
    """Return the function of a region: on the board that this is, or in the toolkit's simulator.

    The simulator takes no file for the NPU: it builds the model again, which takes milliseconds.
    """
    with zipfile.ZipFile(io.BytesIO(blob)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    kinds = json.loads(parts["outputs.json"])
    rknn = on_board(parts["region.rknn"]) if options["device"] == "board" else simulated(parts, options)

    def run(arrays):
        results = rknn.inference(inputs=list(arrays), data_format=["nchw"] * len(arrays))
        if results is None:
            raise RuntimeError("the toolkit gives no results; what it printed says why")
        return [np.asarray(results[place]).astype(kind) for place, kind in enumerate(kinds)]

    return run


def simulated(parts, options):
    """Return a model in the simulator."""
    with tempfile.TemporaryDirectory() as folder, np.load(io.BytesIO(parts["samples.npz"])) as file:
        rknn = built(parts["model.onnx"], options, [file[name] for name in file.files], folder)
        done(rknn.init_runtime(), "start of the simulator")
    return rknn


def on_board(made):
    """Return a model on the NPU of this machine, by rknn-toolkit-lite2."""
    from rknnlite.api import RKNNLite

    rknn = RKNNLite()
    with tempfile.NamedTemporaryFile(suffix=".rknn") as file:
        file.write(made)
        file.flush()
        done(rknn.load_rknn(file.name), "load")
    done(rknn.init_runtime(), "start of the NPU")
    return rknn


def built(model, options, samples, folder):
    """Return the toolkit's object for a model, built; raise RuntimeError where it refuses."""
    from rknn.api import RKNN

    path, listed = os.path.join(folder, "model.onnx"), None
    with open(path, "wb") as file:
        file.write(model)
    if samples:
        listed = os.path.join(folder, "samples.txt")
        with open(listed, "w") as file:
            for number in range(len(samples[0])):
                names = [os.path.join(folder, f"{number}-{place}.npy") for place in range(len(samples))]
                for place, array in enumerate(samples):
                    np.save(names[place], array[number])
                file.write(" ".join(names) + "\n")
    rknn = RKNN(verbose=False)
    try:
        done(rknn.config(target_platform=options["target"], optimization_level=options["optimise"]), "configuration")
        done(rknn.load_onnx(model=path), "import")
        done(rknn.build(do_quantization=bool(samples), dataset=listed), "build")
    except ValueError as error:  # its text is the trace of another
        raise RuntimeError(str(error).strip().splitlines()[-1]) from error
    return rknn


def done(status, what):
    """Raise RuntimeError where a call of the toolkit failed; it has printed why."""
    if status != 0:
        raise RuntimeError(f"the {what} ended with {status}; what the toolkit printed says why")
