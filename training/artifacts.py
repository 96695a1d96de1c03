"""ONNX Runtime's artifacts of training, read as a `Trainer`: its evaluation model, optimiser model and checkpoint.

The gradients of its training model are operators of ONNX Runtime's own; here they are derived anew of the evaluation
model, which computes the same loss. The checkpoint is a FlatBuffers file (ort_training_checkpoint.fbs of ONNX Runtime).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graft.core.importer.load import load
from graft.errors import ModelError
from graft.runtime.arguments import PATH, TEXT, optional, takes
from graft.training.editing import Writer
from graft.training.flat_tables import DamagedError, Table
from graft.training.optimizers import RATE, SGD, Adam, AdamW, Optimizer
from graft.training.trainer import Trainer

IDENTIFIER = "ODTC"
RATE_OF_GROUPS = 0.001
"""ONNX Runtime's learning rate where a checkpoint says none."""
MEANS = {"momentum0": "mean", "momentum1": "square"}
"""What ONNX Runtime calls the states of Adam, and Graft."""


@dataclass(slots=True)
class Checkpoint:
    """What a checkpoint holds: weights by name, and for a training that has begun its steps, rate and states."""

    trained: dict[str, np.ndarray] = field(default_factory=dict)
    frozen: dict[str, np.ndarray] = field(default_factory=dict)
    steps: int = 0
    learning_rate: float = RATE_OF_GROUPS
    states: dict[str, np.ndarray] = field(default_factory=dict)
    """By the names that the arrays of a trainer have."""


@takes(folder=PATH, prefix=TEXT, checkpoint=optional(PATH))
def from_artifacts(
    folder: str | os.PathLike[str],
    *,
    prefix: str = "",
    checkpoint: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Trainer:
    """Return a trainer that goes on from the artifacts in a folder, which `generate_artifacts` has written.

    These are ``eval_model.onnx``, ``checkpoint`` and, where they are there, ``optimizer_model.onnx`` and
    ``training_model.onnx``, behind a ``prefix``; ``checkpoint`` is another than that of the folder. The first output
    of the evaluation model is the loss. ``settings`` are those of `Trainer`. Raises ModelError for files that are
    damaged, or of several trainings.
    """
    at = Path(folder)
    path = Path(checkpoint) if checkpoint is not None else at / f"{prefix}checkpoint"
    held, proto = read_checkpoint(path), _model(at / f"{prefix}eval_model.onnx")
    _require_gradients(at / f"{prefix}training_model.onnx", held, path)
    _take(proto.graph, {**held.trained, **held.frozen}, path)
    optimizer, clip_norm = _optimizer(at / f"{prefix}optimizer_model.onnx", held.learning_rate)
    if clip_norm is not None:
        settings.setdefault("clip_norm", clip_norm)
    settings = {"wrt": [*held.trained], **settings}
    trainer = Trainer(load(proto), proto.graph.output[0].name, settings.pop("optimizer", optimizer), **settings)
    state = trainer.state()
    if held.states.keys() & state.keys():
        trainer.restore({**state, **{name: held.states.get(name, array) for name, array in state.items()}})
    trainer.counts.steps = held.steps
    return trainer


def _model(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path)
    except OSError as error:
        raise ModelError(f"cannot read the artifact '{path}': {error.strerror}") from error
    except Exception as error:  # protobuf's, which has no class of its own in every version
        raise ModelError(f"the artifact '{path}' is no ONNX model: {error}") from error


def _take(graph: onnx.GraphProto, arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Let weights that are inputs of a graph be constants, in place."""
    inputs = {one.name: one for one in graph.input}
    if missing := sorted(arrays.keys() - inputs.keys() - {one.name for one in graph.initializer}):
        raise ModelError(
            f"the checkpoint '{path}' is of another model: its weight '{missing[0]}' is no input of the evaluation "
            f"model, which has {', '.join(list(inputs)[:8])}",
            value=missing[0],
        )
    for name, array in arrays.items():
        if name not in inputs:
            continue
        wanted = [dim.dim_value for dim in inputs[name].type.tensor_type.shape.dim]
        if wanted != list(array.shape):
            raise ModelError(
                f"the checkpoint '{path}' is of another model: '{name}' is {list(array.shape)}, and {wanted} in the "
                "evaluation model",
                value=name,
            )
        graph.input.remove(inputs[name])
        graph.initializer.append(numpy_helper.from_array(array, name))


def _require_gradients(path: Path, held: Checkpoint, checkpoint: Path) -> None:
    """Raise ModelError where the training model does not have the gradients of what a checkpoint trains."""
    if not path.exists():
        return
    outputs = [one.name for one in _model(path).graph.output]
    for name in held.trained:
        if not any(one.startswith(f"{name}_grad") for one in outputs):
            raise ModelError(
                f"'{path}' has no gradient of '{name}', which the checkpoint '{checkpoint}' trains", value=name
            )


# ---- The optimiser ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DecayedAfter(AdamW):
    """AdamW of Hugging Face, ONNX Runtime's mode 1: weights shrink by ``rate * weight_decay`` behind each step."""

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str], rate: str = RATE) -> None:
        """Add ONNX's Adam, and what makes its results smaller."""
        self._write(graph, gradients, rate, None, 0.0)
        moved = {node.output[0]: node for node in graph.node}
        f = Writer(graph, f"decay/{rate}", TensorProto.FLOAT)
        kept = f("Sub", f.number(1.0), f("Mul", rate, f.number(self.weight_decay)))
        for weight in gradients:
            result, node = f"{weight}_next", moved[f"{weight}_next"]
            node.output[0] = f"{weight}_moved"
            graph.node.append(helper.make_node("Mul", [node.output[0], kept], [result], f"{weight}/decay"))


def _optimizer(path: Path, rate: float) -> tuple[Optimizer, float | None]:
    """Return the optimiser of a model of ONNX Runtime, and the norm to which it cuts gradients, None for none."""
    if not path.exists():
        return Adam(rate), None
    graph = _model(path).graph
    tensors = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    bounds = [tensors[one.input[0]] for one in graph.node if one.op_type == "Div" and one.input[0] in tensors]
    clip_norm = float(bounds[0].reshape(-1)[0]) if bounds else None
    for node in graph.node:
        if node.op_type == "SGDOptimizerV2":
            return SGD(rate), clip_norm
        if node.op_type == "AdamWOptimizer":
            return _adam(path, node, rate), clip_norm
    kinds = ", ".join(sorted({one.op_type for one in graph.node}))
    raise ModelError(f"'{path}' has no optimiser that is known, AdamWOptimizer or SGDOptimizerV2; it has {kinds}")


def _adam(path: Path, node: onnx.NodeProto, rate: float) -> Optimizer:
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    for name, wanted, why in (
        ("adam_mode", 1, "adds epsilon behind the correction of the bias"),
        ("correct_bias", 1, "does not correct the bias"),
    ):
        if given.get(name, 0 if name == "adam_mode" else 1) != wanted:
            raise ModelError(
                f"'{path}': AdamWOptimizer (node '{node.name}') {why} ({name} is not {wanted}), which Graft has not; "
                "give an optimizer",
                node=node.name,
            )
    betas = (round(given.get("alpha", 0.9), 7), round(given.get("beta", 0.999), 7))
    epsilon, decay = given.get("epsilon", 1e-8), given.get("weight_decay", 1e-2)
    return DecayedAfter(rate, betas, epsilon, decay) if decay else Adam(rate, betas, epsilon)


# ---- The checkpoint -----------------------------------------------------------------------------------------------


def read_checkpoint(path: Path) -> Checkpoint:
    """Return what a checkpoint of ONNX Runtime holds; raise ModelError for another file, and for a damaged one."""
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder: checkpoints of that form are not read; save it as one file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the checkpoint '{path}': {error.strerror}") from error
    try:
        return _checkpoint(path, data)
    except DamagedError as error:
        raise ModelError(f"the checkpoint '{path}' is damaged: an offset leads out of it") from error


def _checkpoint(path: Path, data: bytes) -> Checkpoint:
    root = Table.root(data, IDENTIFIER)
    if root is None:
        raise ModelError(f"'{path}' is no checkpoint of ONNX Runtime: it does not begin with '{IDENTIFIER}'")
    module, found = root.table(1), Checkpoint()
    if module is None:
        raise ModelError(f"the checkpoint '{path}' has no weights")
    if module.number(2, "?"):
        raise ModelError(f"the checkpoint '{path}' is nominal: it names weights and has none; give one with weights")
    for number, arrays in enumerate((found.trained, found.frozen)):
        arrays.update(_array(path, one) for one in module.tables(number))
    groups = root.tables(2)
    if len(groups) > 1:
        raise ModelError(f"the checkpoint '{path}' has {len(groups)} groups of weights, and one is read")
    for group in groups:
        found.steps = int(group.number(1, "q"))
        found.learning_rate = float(np.float32(group.number(2, "f", RATE_OF_GROUPS)))
        for one in group.tables(3):
            for tensor in one.tables(1):
                name, array = _array(path, tensor)
                found.states[f"{one.text(0)}_{MEANS.get(name, name)}"] = array
    return found


def _array(path: Path, tensor: Table) -> tuple[str, np.ndarray]:
    """Return the name of a tensor, and what it holds in the file or, at an offset, in the one beside it."""
    name, shape, raw = tensor.text(0), tensor.integers(2), tensor.raw(4)
    try:
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(int(tensor.number(3, "i"))))
        size = math.prod(shape) * kind.itemsize
        if (offset := int(tensor.number(6, "q", -1))) >= 0:
            raw = path.with_name(f"{path.name}.data").read_bytes()[offset : offset + size]
        if len(raw) != size or min(shape, default=0) < 0:
            raise ValueError
        return name, np.frombuffer(raw, kind).reshape(shape).copy()
    except OSError as error:
        raise ModelError(f"cannot read '{path}.data', in which '{name}' is: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the checkpoint '{path}' is damaged: '{name}' does not have the bytes of {shape}") from error
