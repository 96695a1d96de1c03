"""Values inside a model for data of the user's: what regions in its middle are quantised by.

``python -m graft_rknn.calibration MODEL.onnx DATA.npz VALUES.npz``: DATA has the model's inputs, samples along axis 0.
"""

import sys

import numpy as np
import onnx

import graft


def values_of(model, data):
    """Return the float values of a model by name, stacked over the samples of its inputs."""
    proto = onnx.shape_inference.infer_shapes(model)
    known = {one.name for one in (*proto.graph.input, *proto.graph.output)}
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    inside = [one for one in proto.graph.value_info if one.type.tensor_type.elem_type in floats]
    proto.graph.output.extend(one for one in inside if one.name not in known)
    program = graft.compile(proto, ["llvm", "reference"])
    count = len(next(iter(data.values())))
    feeds = [{name: array[number] for name, array in data.items()} for number in range(count)]
    rows = [{**feed, **program.run(feed)} for feed in feeds]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def main(model, data, values):
    """Write the values."""
    with np.load(data) as file:
        np.savez(values, **values_of(onnx.load(model), {name: file[name] for name in file.files}))


if __name__ == "__main__":
    main(*sys.argv[1:])
