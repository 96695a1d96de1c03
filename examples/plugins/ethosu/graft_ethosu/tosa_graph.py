"""A TOSA graph as data: tensors, operators and constants, and the flatbuffer that TOSA's tools read."""

import math
from dataclasses import dataclass, field
from importlib import import_module

import numpy as np

VELA, SIMULATED = (1, 0, 0, False), (1, 1, 0, True)
"""The versions of TOSA that Vela and the reference model read, the latter a draft; what is said here is in both."""
SERIALISER = (2026, 8, 0)
"""The release of TOSA's serialiser whose tables are written."""
STORED = {"INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT48": "<i8", "SHAPE": "<i8"}
"""By type of element how a constant lies in memory; of the last but one six of the eight bytes are kept."""
NAMED = {"acc_type": "DType", "rounding_mode": "RoundingMode", "nan_mode": "NanPropagationMode", "mode": "ResizeMode"}
"""Attributes that are members of an enumeration, with its name."""
BYTES = ("min_val", "max_val")
"""Attributes that are numbers in the type of the tensor, as bytes."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by name; ``data`` holds the contents of a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: its name in TOSA, its operands, its result, its attributes, and the ONNX nodes that it is of."""

    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    attributes: dict
    origin: str


@dataclass(slots=True)
class TosaGraph:
    """Operators in order of execution; ``origin`` names the ONNX nodes of those that are added next."""

    operators: list[Operator] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)
    origin: str = ""

    def input(self, shape, dtype):
        """Return a new input."""
        self.inputs.append(Tensor(f"input{len(self.inputs)}", tuple(shape), dtype))
        return self.inputs[-1]

    def constant(self, numbers, dtype="INT32"):
        """Return a constant; of dtype SHAPE a list of extents."""
        data = np.asarray(numbers)
        shape = data.shape or (1,)
        self.constants.append(Tensor(f"constant{len(self.constants)}", shape, dtype, data.reshape(shape)))
        return self.constants[-1]

    def add(self, name, inputs, shape, dtype, **attributes):
        """Add an operator and return its result."""
        output = Tensor(f"{name.lower()}{len(self.operators)}", tuple(map(int, shape)), dtype)
        self.operators.append(Operator(name, tuple(inputs), output, attributes, self.origin))
        return output

    def transposed_at_edges(self):
        """Return how many bytes are transposed between the model's order of axes and the NPU's."""
        ends = {one.name for one in (*self.inputs, *self.outputs)}
        for one in self.operators:
            if one.attributes.get("input_unsigned") or one.attributes.get("output_unsigned"):
                ends |= {one.inputs[0].name, one.output.name}
        moved = [one.output for one in self.operators
                 if one.name == "TRANSPOSE" and ends & {one.inputs[0].name, one.output.name}]  # fmt: skip
        return sum(math.prod(one.shape) * np.dtype(STORED[one.dtype]).itemsize for one in moved)

    def flatbuffer(self, version=VELA):
        """Return the graph as TOSA's tools read it."""
        return _Writer().graph(self, version)


def _camel(name):
    return "".join(word.capitalize() for word in name.split("_"))


class _Writer:
    """Writes with the classes that flatbuffers generates from TOSA's schema."""

    def __init__(self):
        import flatbuffers

        self.builder = flatbuffers.Builder(1 << 16)

    def graph(self, graph, version):
        """Return a graph with its one region of one block."""
        from tosa.Attribute import Attribute
        from tosa.Op import Op

        self.kinds, self.codes = vars(Attribute), vars(Op)
        shapes = [one for one in graph.constants if one.dtype == "SHAPE"]
        known = (*graph.inputs, *(one for one in graph.constants if one.dtype != "SHAPE"))
        tensors = [*known, *(one.output for one in graph.operators)]
        made = [
            Operator("CONST_SHAPE" if one.dtype == "SHAPE" else "CONST", (), one, {}, "") for one in graph.constants
        ]
        block = self.table(
            "TosaBasicBlock",
            name=self.builder.CreateString("main"),
            operators=self.vector([self.operator(one) for one in (*made, *graph.operators)]),
            tensors=self.vector([self.tensor(one) for one in tensors]),
            inputs=self.names(graph.inputs),
            outputs=self.names(graph.outputs),
            shapes=self.vector([self.extents(one) for one in shapes]),
        )
        blocks = self.vector([block])
        region = self.table("TosaRegion", name=self.builder.CreateString("main"), blocks=blocks)
        regions = self.vector([region])
        spec = self.table("Version", **dict(zip(("_major", "_minor", "_patch", "_draft"), version, strict=True)))
        fields = dict(zip(("_major", "_minor", "_micro"), SERIALISER, strict=True))
        software = self.table("SoftwareVersion", **fields, _modifier=self.builder.CreateString(""))
        whole = self.table("TosaGraph", version=spec, regions=regions, software_version=software)
        self.builder.Finish(whole, b"TOSA")
        return bytes(self.builder.Output())

    def table(self, kind, **fields):
        """Return a table whose fields are numbers, or offsets of what is already written."""
        module = import_module(f"tosa.{kind}")
        module.Start(self.builder)
        for name, value in fields.items():
            prefix = "Add_" if name.startswith("_") else "Add"
            getattr(module, prefix + _camel(name.strip("_")))(self.builder, value)
        return module.End(self.builder)

    def vector(self, offsets):
        """Return a vector of tables or strings."""
        self.builder.StartVector(4, len(offsets), 4)
        for one in reversed(offsets):
            self.builder.PrependUOffsetTRelative(one)
        return self.builder.EndVector()

    def names(self, tensors):
        """Return the names of tensors."""
        return self.vector([self.builder.CreateString(one.name) for one in tensors])

    def numbers(self, array):
        """Return a vector of numbers; one of bytes is aligned as constants must be."""
        alignment = 8 if array.dtype == np.uint8 else array.itemsize
        self.builder.StartVector(array.itemsize, array.size, alignment)
        self.builder.head = self.builder.Head() - array.nbytes
        self.builder.Bytes[self.builder.Head() : self.builder.Head() + array.nbytes] = array.tobytes()
        self.builder.vectorNumElems = array.size
        return self.builder.EndVector()

    def tensor(self, tensor):
        """Return a tensor; of a constant with its contents."""
        from tosa.DType import DType

        name, shape = self.builder.CreateString(tensor.name), self.numbers(np.array(tensor.shape, np.int32))
        held = {} if tensor.data is None else {"data": self.numbers(stored(tensor))}
        return self.table("TosaTensor", name=name, shape=shape, type=getattr(DType, tensor.dtype), **held)

    def extents(self, tensor):
        """Return a constant list of extents."""
        name, data = self.builder.CreateString(tensor.name), self.numbers(stored(tensor))
        return self.table("TosaShape", name=name, rank=len(tensor.data), data=data)

    def operator(self, one):
        """Return an operator with its attributes."""
        kind = KINDS.get(one.name) or _camel(one.name)
        fields = {name: self.attribute(name, value, one.output.dtype) for name, value in one.attributes.items()}
        attribute = self.table(f"{kind}Attribute", **fields)
        text = self.builder.CreateString(one.origin)
        location = self.table("OpLocation", text=text)
        return self.table(
            "TosaOperator",
            **{"inputs": self.names(one.inputs), "outputs": self.names([one.output])},
            op=self.codes[one.name],
            attribute_type=self.kinds[f"{kind}Attribute"],
            attribute=attribute,
            location=location,
        )

    def attribute(self, name, value, dtype):
        """Return the value of a field."""
        if name in NAMED:
            return getattr(getattr(import_module(f"tosa.{NAMED[name]}"), NAMED[name]), value)
        if name in BYTES:
            return self.numbers(np.array([value], STORED[dtype]).view(np.uint8))
        return self.numbers(np.array(value, np.int32)) if isinstance(value, list | tuple) else value


KINDS = {"ARGMAX": "ArgMax", "MATMUL": "MatMul", "AVG_POOL2D": "AvgPool2d", "MAX_POOL2D": "MaxPool2d",
         "CONV2D": "Conv2d", "DEPTHWISE_CONV2D": "DepthwiseConv2d", "TRANSPOSE_CONV2D": "TransposeConv2d"}  # fmt: skip
"""Operators whose attributes have a name of another spelling."""


def stored(tensor):
    """Return the bytes of a constant."""
    data = np.ascontiguousarray(tensor.data).astype(STORED[tensor.dtype]).reshape(-1)
    if tensor.dtype == "INT48":
        return np.ascontiguousarray(data.view(np.uint8).reshape(-1, 8)[:, :6]).reshape(-1)
    return data.view(np.uint8)
