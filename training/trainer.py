"""`graft.training.Trainer`: a model, a loss and an optimiser as one program, a step of which takes weights further."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

import graft.compiler.api as api
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.errors import ModelError
from graft.runtime.arguments import TEXT, TEXTS, WHOLE, optional, takes
from graft.training.editing import edited, free, values_of
from graft.training.gradients import grad, weights_of
from graft.training.losses import LOSSES, loss
from graft.training.optimizers import NUMBER, RATE, Adam, Optimizer
from graft.training.training_form import train_statistics

Arrays = dict[str, np.ndarray]


class Trainer:
    """Trains a model: `step` with a batch, or `fit` with all data; `model` is what has been learnt so far.

    ``kind`` is a loss of `graft.loss`, which then has the input ``target``, or the name of a value of the model that is
    one number. ``wrt`` are the weights that are trained; all that are not statistics if left out. The gradient, the
    optimiser and what BatchNormalization learns are one program (`program`), which may be saved as any other; its
    inputs are those of the model, the target, weights, states, ``learning_rate`` and ``step``.
    """

    @takes(model=SOURCE, kind=TEXT, of=optional(TEXT), wrt=optional(TEXTS), threads=optional(WHOLE))
    def __init__(
        self,
        model: Source,
        kind: str = "cross-entropy",
        optimizer: Optimizer | None = None,
        *,
        of: str | None = None,
        wrt: Sequence[str] | None = None,
        backends: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self._model, self.optimizer = load(model), optimizer or Adam()
        whole = loss(self._model, kind, of=of) if kind in LOSSES else self._model
        self._loss = "loss" if kind in LOSSES else kind
        self._buffers: dict[str, str] = {}
        trained = edited(whole, lambda proto: self._buffers.update(train_statistics(proto.graph)))
        wanted = [name for name in weights_of(trained) if name not in self._buffers] if wrt is None else list(wrt)
        self.weights = tuple(wanted)
        self.arrays: Arrays = self._initial(trained)
        self.steps = 0
        gradients = grad(trained, self._loss, wanted, outputs=[self._loss, *self._buffers.values()])
        self.step_model = self._with_step(gradients)
        self.program = api.compile(self.step_model, backends, threads=threads)

    def _initial(self, model: ir.Model) -> Arrays:
        """Return weights, statistics and states before the first step."""
        tensors = model.graph.initializers
        missing = [name for name in self.weights if name not in tensors]
        if missing:
            raise ModelError(f"'{missing[0]}' is no weight of the model, so it cannot be trained", value=missing[0])
        found: Arrays = {}
        for name in (*self.weights, *self._buffers):
            tensor = tensors[name].const_value
            assert tensor is not None, name
            found[name] = np.array(tensor.numpy())
        for name in self.weights:
            found.update({f"{name}_{state}": np.zeros_like(found[name]) for state in self.optimizer.states})
        return found

    def _with_step(self, model: ir.Model) -> ir.Model:
        """Return a model of gradients with the optimiser behind them, weights as inputs."""
        values = values_of(model)
        for name in (RATE, NUMBER, *(f"{one}_next" for one in self.arrays if one not in self._buffers)):
            free(values, name)

        def edit(proto: onnx.ModelProto) -> None:
            graph = proto.graph
            for name in self.arrays:
                for tensor in [one for one in graph.initializer if one.name == name]:
                    graph.initializer.remove(tensor)
                for value in [one for one in graph.input if one.name == name]:
                    graph.input.remove(value)
            graph.input.extend(self._typed(name) for name in self.arrays)
            graph.input.append(helper.make_tensor_value_info(RATE, TensorProto.FLOAT, []))
            graph.input.append(helper.make_tensor_value_info(NUMBER, TensorProto.INT64, []))
            self.optimizer.write(graph, {name: f"{name}_grad" for name in self.weights})
            del graph.output[1:]
            graph.output.extend(self._typed(name, "_next") for name in self.arrays)

        return edited(model, edit, without=frozenset(self.arrays))

    def _typed(self, name: str, suffix: str = "") -> onnx.ValueInfoProto:
        array = self.arrays[name]
        return helper.make_tensor_value_info(
            f"{name}{suffix}", helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )

    # ---- Training ------------------------------------------------------------------------------------------------

    def step(self, feeds: Mapping[str, Any], learning_rate: float | None = None) -> float:
        """Take one step with a batch, arrays by input; return the loss before it."""
        rate = self.optimizer.learning_rate if learning_rate is None else learning_rate
        number = np.array(self.steps + 1, np.int64)
        found = self.program.run({**feeds, **self.arrays, RATE: np.float32(rate), NUMBER: number})
        self.arrays = {name: np.asarray(found[f"{name}_next"]) for name in self.arrays}
        self.steps += 1
        return float(np.asarray(found[self._loss]))

    def fit(
        self,
        data: Mapping[str, np.ndarray],
        *,
        epochs: int = 1,
        batch: int = 32,
        seed: int = 0,
        schedule: Callable[[int], float] | None = None,
        each: Callable[[int, float], bool | None] | None = None,
    ) -> list[float]:
        """Train with arrays by input, stacked along the first axis, drawn anew each epoch; return the mean losses.

        What is left of an epoch behind whole batches is left out. ``schedule`` gives the learning rate of a step by
        its number from 0 on. ``each`` is told epoch and loss, and ends the training by returning True.
        """
        rng = np.random.default_rng(seed)
        losses = []
        for epoch in range(epochs):
            found = [
                self.step(feeds, None if schedule is None else schedule(self.steps))
                for feeds in _batches(data, batch, rng)
            ]
            losses.append(float(np.mean(found)))
            if each is not None and each(epoch, losses[-1]):
                break
        return losses

    @property
    def model(self) -> ir.Model:
        """The model with the weights and statistics of now, without loss."""
        copy = self._model.clone()
        for name in (*self.weights, *self._buffers):
            copy.graph.initializers[name].const_value = ir.tensor(self.arrays[name].copy(), name=name)
        return load(ir.to_proto(copy))

    # ---- What a training goes on from ----------------------------------------------------------------------------

    def state(self) -> Arrays:
        """Return all that a training goes on from: weights, statistics, states of the optimiser, number of steps."""
        return {**{name: array.copy() for name, array in self.arrays.items()}, NUMBER: np.array(self.steps)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave, to the bit. Raises ModelError for that of another model or optimiser."""
        wanted = {NUMBER, *self.arrays}
        if state.keys() != wanted or any(state[one].shape != array.shape for one, array in self.arrays.items()):
            names = sorted(wanted ^ state.keys()) or ["shapes"]
            raise ModelError(f"the state is of another model or optimiser: {', '.join(names[:3])} differ")
        self.arrays = {name: np.array(state[name]) for name in self.arrays}
        self.steps = int(state[NUMBER])


def _batches(data: Mapping[str, np.ndarray], batch: int, rng: np.random.Generator) -> Iterator[Arrays]:
    counts = {len(array) for array in data.values()}
    if len(counts) != 1 or not 0 < batch <= min(counts):
        raise ModelError(f"data of {sorted(counts)} rows do not make batches of {batch}")
    order = rng.permutation(counts.pop())
    for start in range(0, len(order) - batch + 1, batch):
        yield {name: array[order[start : start + batch]] for name, array in data.items()}
