"""The interface `onnx.backend.base.Backend` for Graft: what ONNX's own tools and test suite drive a backend by.

import graft.onnx_backend as backend

prepared = backend.prepare(model, threads=1)
results = prepared.run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

import graft.compiler.api as api
from graft.core.importer.source import SOURCE
from graft.core.importer.upgrade import OPSET
from graft.errors import InputError, UnsupportedError
from graft.runtime.arguments import TEXT, Kind, instance, optional, takes
from graft.runtime.foreign import shown
from graft.runtime.program import Program

DEVICES = ("CPU",)
TOLERANCES = ("rtol", "atol")
"""What ONNX's runner of tests hands to `prepare` although it concerns the comparison alone."""


INPUTS = Kind(
    "a list of arrays in the order of the inputs, arrays by name, or one array",
    lambda value: (
        isinstance(value, list | tuple | np.ndarray)
        or (isinstance(value, Mapping) and all(isinstance(name, str) for name in value))
    ),
)
OUTPUTS = Kind(
    "a list of the dtype and the shape of each output",
    lambda value: (
        isinstance(value, list | tuple)
        and all(
            isinstance(np.dtype(dtype), np.dtype) and all(isinstance(extent, int) for extent in shape)
            for dtype, shape in value
        )
    ),
)
NODE = instance(onnx.NodeProto, wanted="an onnx.NodeProto")


class PreparedModel(BackendRep):
    """A compiled model: the handle that `prepare` returns."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @takes(inputs=INPUTS)
    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Return the outputs in the model's order, by index or name, of inputs in order, by name, or a single array.

        Raises InputError as a call of a program does, and for options, for there are none.
        """
        if options:
            raise InputError(f"run takes no options, got '{next(iter(options))}'; give them to prepare")
        if isinstance(inputs, Mapping):
            results = tuple(self.program.run(inputs).values())
        else:
            found = self.program(*([inputs] if isinstance(inputs, np.ndarray) else inputs))
            results = found if len(self.program.outputs) != 1 else (found,)
        names = [output.name for output in self.program.outputs]
        named: tuple[Any, ...] = namedtupledict("Outputs", names)(*results)
        return named


class GraftBackend(Backend):
    """Graft as ONNX's tools see it; a subclass may fix ``options``, which `graft.compile` gets."""

    options: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    @takes(model=SOURCE, device=TEXT)
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> PreparedModel:
        """Compile a model; ``options`` are those of `graft.compile`. Raises GraftError as that does."""
        _require_device(device)
        requested = {name: value for name, value in options.items() if name not in TOLERANCES}
        return PreparedModel(api.compile(model, **{**cls.options, **requested}))

    @classmethod
    @takes(model=SOURCE, inputs=INPUTS, device=TEXT)
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Compile a model, run it once and return its outputs."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    @takes(node=NODE, inputs=INPUTS, device=TEXT, outputs_info=optional(OUTPUTS))
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Compile one node of opset ``opset_version`` (default: the newest that `graft.load` knows), and run it.

        ``inputs`` are arrays in the order of the node's named inputs, or by name. The types of the outputs are
        inferred; ``outputs_info`` says those that ONNX cannot infer. Raises ModelError where a type is not known.
        """
        opset = options.pop("opset_version", OPSET)
        named = list(dict.fromkeys(name for name in node.input if name))
        given = [inputs] if isinstance(inputs, np.ndarray) else inputs
        if not isinstance(given, Mapping) and len(given) != len(named):
            raise InputError(f"{node.op_type} has {len(named)} inputs, got {len(given)}; give an array for each")
        arrays = dict(given) if isinstance(given, Mapping) else dict(zip(named, given, strict=True))
        return cls.run_model(_model_of(node, arrays, outputs_info, opset), arrays, device, **options)

    @classmethod
    @takes(device=TEXT)
    def supports_device(cls, device: str) -> bool:
        """Whether models run on ``device``: ``CPU`` is all there is."""
        return device.partition(":")[0] in DEVICES

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Whether `prepare` is to be tried: yes, on a device that is supported; what it refuses, it says why."""
        return cls.supports_device(device)


def _require_device(device: str) -> None:
    if not GraftBackend.supports_device(device):
        raise UnsupportedError(f"device '{device}' is not supported; give {', '.join(DEVICES)}")


def _model_of(
    node: onnx.NodeProto,
    arrays: Mapping[str, Any],
    outputs: Sequence[tuple[np.dtype, tuple[int, ...]]] | None,
    opset: int,
) -> onnx.ModelProto:
    """Return a model of one node whose inputs have the types of the arrays."""
    values = [
        onnx.helper.make_tensor_value_info(name, _element(name, array), np.shape(array))
        for name, array in arrays.items()
    ]
    named = [name for name in node.output if name]
    results = [onnx.ValueInfoProto(name=name) for name in named]
    if outputs is not None:
        if len(outputs) != len(named):
            raise InputError(f"{node.op_type} has {len(named)} outputs, outputs_info tells of {len(outputs)}")
        results = [
            onnx.helper.make_tensor_value_info(name, _element(name, np.empty(0, dtype)), shape)
            for name, (dtype, shape) in zip(named, outputs, strict=True)
        ]
    imports = [onnx.helper.make_opsetid(node.domain, opset)]
    graph = onnx.helper.make_graph([node], node.name or node.op_type, values, results)
    return onnx.helper.make_model(graph, opset_imports=imports)


def _element(name: str, array: Any) -> int:
    """Return ONNX's number for the type of an input's elements."""
    numbers = np.asarray(array)
    try:
        if not numbers.dtype.hasobject or all(isinstance(text, str) for text in numbers.reshape(-1)):
            return int(onnx.helper.np_dtype_to_tensor_dtype(numbers.dtype))
    except (KeyError, TypeError, ValueError):
        pass  # a type that ONNX does not have
    raise InputError(f"input '{name}' is no array: {shown(array)}; give numbers or texts", input=name)


is_compatible = GraftBackend.is_compatible
prepare = GraftBackend.prepare
run_model = GraftBackend.run_model
run_node = GraftBackend.run_node
supports_device = GraftBackend.supports_device
