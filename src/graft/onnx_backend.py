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
from graft.core.model.load import OPSET
from graft.errors import InputError, ModelError, UnsupportedError
from graft.runtime.program import Program

DEVICES = ("CPU",)
TOLERANCES = ("rtol", "atol")
"""What ONNX's runner of tests hands to `prepare` although it concerns the comparison alone."""


class PreparedModel(BackendRep):  # type: ignore[misc]
    """A compiled model: the handle that `prepare` returns."""

    def __init__(self, program: Program) -> None:
        self.program = program

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


class GraftBackend(Backend):  # type: ignore[misc]
    """Graft as ONNX's tools see it; a subclass may fix ``options``, which `graft.compile` gets."""

    options: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> PreparedModel:
        """Compile a model; ``options`` are those of `graft.compile`. Raises GraftError as that does."""
        _require_device(device)
        wishes = {name: value for name, value in options.items() if name not in TOLERANCES}
        return PreparedModel(api.compile(model, **{**cls.options, **wishes}))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Compile a model, run it once and return its outputs."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Compile one node of opset ``opset_version`` (default: the newest that `graft.load` knows), and run it.

        ``inputs`` are arrays in the order of the node's named inputs, or by name. The types of the outputs are inferred;
        ``outputs_info`` says those that ONNX cannot infer. Raises ModelError where a type is not known.
        """
        opset = options.pop("opset_version", OPSET)
        named = list(dict.fromkeys(name for name in node.input if name))
        arrays = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(named, inputs, strict=True))
        return cls.run_model(_model_of(node, arrays, outputs_info, opset), arrays, device, **options)

    @classmethod
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
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array)
        )
        for name, array in arrays.items()
    ]
    named = [name for name in node.output if name]
    results = [onnx.ValueInfoProto(name=name) for name in named]
    if outputs is not None:
        results = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(named, outputs, strict=True)
        ]
    imports = [onnx.helper.make_opsetid(node.domain, opset)]
    graph = onnx.helper.make_graph([node], node.name or node.op_type, values, results)
    model = onnx.helper.make_model(graph, opset_imports=imports)
    if outputs is None:
        model = onnx.shape_inference.infer_shapes(model)
        untyped = [value.name for value in model.graph.output if not value.HasField("type")]
        if untyped:
            raise ModelError(
                f"{node.op_type} (node '{node.name}'): the type of output '{untyped[0]}' cannot be inferred; "
                "give outputs_info",
                value=untyped[0],
            )
    return model


is_compatible = GraftBackend.is_compatible
prepare = GraftBackend.prepare
run_model = GraftBackend.run_model
run_node = GraftBackend.run_node
supports_device = GraftBackend.supports_device
