"""TOSA's own conformance cases, brought to ONNX, compiled by the plugin, and back: what comes out is what TOSA defines.

    pip install semver jsonschema       # what the generator of tosa-tools imports
    python tests/tosa_cases.py FOLDER   # makes the cases there, runs each, prints a table

A case is a graph of one operator with numbers that tosa-tools draws. Those operators are here that ONNX says with
integers of the same width; Vela takes the region, and the reference model runs both.
"""

import json
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import tosa_reference_model
from onnx import helper, numpy_helper
from tosa.DType import DType
from tosa.Op import Op
from tosa.TosaGraph import TosaGraph

import graft
from graft_ethosu.backend import EthosU

MAKE = ("--test-type", "positive", "--tensor-dim-range", "1,12", "--max-batch-size", "1", "--no-special-tests")
NAMES = {number: name for name, number in vars(Op).items() if isinstance(number, int)}
TYPES = {DType.INT8: np.int8, DType.INT16: np.int16, DType.INT32: np.int32}
SHAPES = ("RESHAPE", "SLICE", "PAD")
MANY = 64
OPERATORS = {
    "argmax": ("int8",), "max_pool2d": ("int8",), "avg_pool2d": ("int8",), "clamp": ("int8",), "reduce_max": ("int8",),
    "reduce_min": ("int8",), "transpose": ("int8", "int16"), "reshape": ("int8", "int16"), "concat": ("int8", "int16"),
    "slice": ("int8", "int16"), "pad": ("int8", "int16"),
}  # fmt: skip
"""By operator of TOSA the types that ONNX has it in."""
ROUNDED = {"avg_pool2d"}
"""QuantizeLinear rounds halves to even, TOSA up: a step apart is counted by itself."""


class Case:
    """The one operator of a graph, its constants, and what is fed."""

    def __init__(self, folder):
        about = json.loads((folder / "desc.json").read_text())
        self.flatbuffer = (folder / about["tosa_file"]).read_bytes()
        self.feeds = [np.load(folder / name) for name in about["ifm_file"]]
        block = TosaGraph.GetRootAs(self.flatbuffer).Regions(0).Blocks(0)
        self.held = {}
        for one in (block.Tensors(at) for at in range(block.TensorsLength())):
            if one.DataLength() and one.Type() in TYPES:
                data = np.array([one.Data(at) for at in range(one.DataLength())], np.uint8)
                shape = [one.Shape(at) for at in range(one.ShapeLength())]
                self.held[one.Name().decode()] = data.view(TYPES[one.Type()])[: int(np.prod(shape))].reshape(shape)
        for one in (block.Shapes(at) for at in range(block.ShapesLength())):
            data = np.array([one.Data(at) for at in range(one.DataLength())], np.uint8).view(np.int64)
            self.held[one.Name().decode()] = data[: one.Rank()]
        operators = [block.Operators(at) for at in range(block.OperatorsLength())]
        (self.operator,) = [one for one in operators if not NAMES[one.Op()].startswith("CONST")]
        self.name = NAMES[self.operator.Op()]
        self.inputs = [self.operator.Inputs(at).decode() for at in range(self.operator.InputsLength())]
        self.given = [one.decode() for one in (block.Inputs(at) for at in range(block.InputsLength()))]

    def attribute(self, field, many=False):
        """Return an attribute of the operator."""
        kind = next(name for name, number in vars(import_module("tosa.Attribute").Attribute).items()
                    if number == self.operator.AttributeType())  # fmt: skip
        table = getattr(import_module(f"tosa.{kind}"), kind)()
        table.Init(self.operator.Attribute().Bytes, self.operator.Attribute().Pos)
        if not many:
            return getattr(table, field)()
        return [getattr(table, field)(at) for at in range(getattr(table, f"{field}Length")())]

    def expected(self):
        """Return what the reference model computes."""
        (made,), status = tosa_reference_model.run(self.flatbuffer, self.feeds)
        assert status == tosa_reference_model.GraphStatus.TOSA_VALID
        return made


def model_of(case):
    """Return a case as an ONNX model."""
    nodes, made = [], []

    def constant(array):
        made.append(numpy_helper.from_array(np.asarray(array), f"constant{len(made)}"))
        return made[-1].name

    def add(name, *inputs, **attributes):
        nodes.append(helper.make_node(name, list(inputs), [f"t{len(nodes)}"], name=f"n{len(nodes)}", **attributes))
        return nodes[-1].output[0]

    def meant(x, zero=0):
        return add("DequantizeLinear", x, constant(np.float32(1)), constant(np.int8(zero)))

    def stored(x, zero=0):
        return add("QuantizeLinear", x, constant(np.float32(1)), constant(np.int8(zero)))

    def held(place):
        return case.held[case.inputs[place]]

    values = {
        name: constant(array) for name, array in case.held.items() if name in case.inputs and name not in case.given
    }
    x, *others = (values.get(name, name) for name in case.inputs)
    match case.name:
        case "ARGMAX":
            y = add("ArgMax", meant(x), axis=case.attribute("Axis"), keepdims=0)
        case "REDUCE_MAX" | "REDUCE_MIN":
            name = "ReduceMax" if case.name == "REDUCE_MAX" else "ReduceMin"
            y = add(name, x, constant(np.array([case.attribute("Axis")])), keepdims=1)
        case "CLAMP":
            low, high = (np.array(case.attribute(one, True), np.uint8).view(np.int8)[0] for one in ("MinVal", "MaxVal"))
            y = stored(add("Clip", meant(x), constant(np.float32(low)), constant(np.float32(high))))
        case "MAX_POOL2D" | "AVG_POOL2D":
            top, bottom, left, right = case.attribute("Pad", True)
            window = {"kernel_shape": case.attribute("Kernel", True), "strides": case.attribute("Stride", True),
                      "pads": [top, left, bottom, right]}  # fmt: skip
            x = add("Transpose", x, perm=[0, 3, 1, 2])
            if case.name == "MAX_POOL2D":
                y = add("MaxPool", x, **window)
            else:
                y = stored(add("AveragePool", meant(x, held(1).item()), **window), held(2).item())
            y = add("Transpose", y, perm=[0, 2, 3, 1])
        case "TRANSPOSE":
            y = add("Transpose", x, perm=case.attribute("Perms", True))
        case "CONCAT":
            y = add("Concat", x, *others, axis=case.attribute("Axis"))
        case "RESHAPE":
            y = add("Reshape", x, constant(held(1)))
        case "SLICE":
            y = add("Slice", x, constant(held(1)), constant(held(1) + held(2)), constant(np.arange(len(held(1)))))
        case "PAD":
            y = add("Pad", x, constant(held(1).reshape(-1, 2).T.reshape(-1)), constant(held(2).reshape(())))
        case _:
            raise ValueError(f"{case.name} is not brought to ONNX")
    nodes[-1].output[0] = "y"
    kinds = {
        name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in zip(case.given, case.feeds, strict=True)
    }
    given = [helper.make_tensor_value_info(name, kinds[name], array.shape)
             for name, array in zip(case.given, case.feeds, strict=True)]  # fmt: skip
    kind = onnx.TensorProto.INT64 if case.name == "ARGMAX" else next(iter(kinds.values()))
    graph = helper.make_graph(nodes, "case", given, [helper.make_tensor_value_info("y", kind, None)], made)
    opset = [helper.make_opsetid("", 25)]
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opset, ir_version=11))


def outcome(folder, npu):
    """Return what becomes of a case: right, a step apart, wrong, or why the plugin refuses it."""
    case = Case(folder)
    model = model_of(case)
    program = graft.compile(model, [EthosU(accelerator=npu), "reference"])
    left = [row for row in graft.Plan.of(program).placements if row.backend != "ethosu"]
    if left:
        return f"refused: {left[0].reasons['ethosu'].text.rpartition(': ')[2]}"
    (found,) = program.run(dict(zip(case.given, case.feeds, strict=True))).values()
    apart = np.abs(found.astype(np.int64) - case.expected().astype(np.int64).reshape(found.shape)).max(initial=0)
    return "right" if apart == 0 else "a step apart" if apart == 1 and folder.parent.name in ROUNDED else "wrong"


def make(folder, name, dtype, seed):
    """Make the cases of an operator, and return their folders."""
    command = [sys.executable, "-W", "ignore", "-m", "generator.tosa_verif_build_tests", "--filter", f"^{name}$", *MAKE]
    target = Path(folder) / f"{dtype}-{seed}"
    command += ["--target-dtype", dtype, "--seed", str(seed), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return sorted(path.parent for path in (target / name).glob("*/desc.json"))


def main(folder, npu="u85-256", *names):
    """Print a table, of at least `MANY` cases of each operator and type; end with 1 where one is wrong."""
    wrong = 0
    for name in names or OPERATORS:
        for dtype in OPERATORS[name]:
            counts, seed = Counter(), 0
            while sum(counts.values()) < MANY:
                seed += 1
                counts.update(outcome(one, npu) for one in make(folder, name, dtype, seed)[:MANY])
            print(f"| {name} | {dtype} | {sum(counts.values())} | {dict(counts)}", flush=True)
            wrong += counts["wrong"]
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
