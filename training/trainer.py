"""`graft.training.Trainer`: a model, a loss and an optimiser as one program, a step of which takes weights further."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

import graft.compiler.api as api
from graft.compiler.request import Backends
from graft.core.collection import collection_rare
from graft.core.graph.skeleton import skeleton_of_model
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.errors import ModelError, RunError
from graft.quantization.statistics.data import Batches, Given
from graft.runtime.arguments import (
    ARRAYS,
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    TEXT,
    TEXT_BY_TEXT,
    TEXTS,
    WHOLE,
    Kind,
    at_least,
    either,
    optional,
    require,
    takes,
)
from graft.runtime.program import Program
from graft.runtime.tensor_info import did_you_mean
from graft.training.checkpoints import read_checkpoint, write_checkpoint
from graft.training.composites import composites_of
from graft.training.editing import edited, free, values_of
from graft.training.gradients import constants_of, notes_of, require_scalar, weights_of, with_gradients
from graft.training.losses import LOSSES, loss
from graft.training.numerics import check_numerics
from graft.training.optimizers import NUMBER, RATE, Adam, Optimizer
from graft.training.progress import Progress
from graft.training.quantized_form import QuantizedForm
from graft.training.recomputation import RECOMPUTE, recomputed
from graft.training.training_form import DRAW, drop, round_products, tie, train_statistics
from graft.training.update import LAST, SCALE, Update

PRECISIONS = {"float32": None, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
FIRST_SCALE, GROWTH = 2.0**16, 2000
"""The scale of the loss at first, for float16, and the steps after which it is doubled."""
OPTIMIZER = Kind(
    "an optimiser, as graft.training.SGD(0.01) is one", lambda value: callable(value.write) and len(value.states) >= 0
)
Arrays = dict[str, np.ndarray]
COUNTS = "counts"
"""The name of the counts in a state."""


@dataclass(slots=True)
class Counts:
    """How far a training is; the scale of the loss, and the steps since it changed."""

    steps: int = 0
    batches: int = 0
    epochs: int = 0
    scale: float = 1.0
    steady: int = 0


class Trainer:
    """Trains a model: `step` with a batch, or `fit` with all data; `model` is what has been learnt so far.

    ``kind`` is a loss of `graft.loss`, which then has the input ``target``, or the name of a value of the model that is
    one number. ``wrt`` are the weights that are trained, all that are not statistics if left out; ``frozen`` are those
    of them that are not; both may have patterns, such as ``"encoder.*"``. ``stop`` are values that no gradient comes
    through. ``tied`` are weights that are others
    throughout. ``groups`` has optimisers of their own for weights by pattern, the first that fits; a learning rate
    that is given to a step is that of ``optimizer``, and those of groups change by the same factor.

    Gradients of ``accumulate`` batches make a step, by their mean, cut to the norm ``clip_norm`` and the magnitude
    ``clip_value``. With a ``precision`` of float16 or bfloat16 products are of that type, all else stays float32; the
    loss is scaled for float16, and a step whose gradients are not finite is left out. Dropout draws by ``seed``.
    ``recompute`` is that of `graft.grad`, for the step as a whole; composites of
    ``backends`` are differentiated by their ``vjp``. With ``check_numerics`` a step whose loss, weights
    or states are not finite is a RunError that names the first node at fault (`graft.training.check_numerics`).

    The gradient, the optimiser and what BatchNormalization learns are one program (`program`), which may be saved as
    any other; its inputs are those of the model, the target, weights, states, ``learning_rate`` and ``step``.
    """

    @takes(model=SOURCE, kind=TEXT, of=optional(TEXT), wrt=optional(TEXTS), frozen=TEXTS, stop=TEXTS,
           tied=optional(TEXT_BY_TEXT), optimizer=optional(OPTIMIZER),
           clip_norm=optional(POSITIVE), clip_value=optional(POSITIVE),
           accumulate=at_least(1), precision=either(*PRECISIONS), seed=at_least(0),
           recompute=RECOMPUTE, threads=optional(WHOLE), check_numerics=FLAG)  # fmt: skip
    @collection_rare()
    def __init__(
        self,
        model: Source,
        kind: str = "cross-entropy",
        optimizer: Optimizer | None = None,
        *,
        of: str | None = None,
        wrt: Sequence[str] | None = None,
        frozen: Sequence[str] = (),
        stop: Sequence[str] = (),
        tied: Mapping[str, str] | None = None,
        groups: Mapping[str, Optimizer] | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        precision: str = "float32",
        seed: int = 0,
        recompute: str | int = "none",
        backends: Backends = None,
        threads: int | None = None,
        check_numerics: bool = False,
    ) -> None:
        self._quantized = QuantizedForm.of(model)
        self._model = load(model) if self._quantized is None else self._quantized.model
        self.optimizer, self._tied = optimizer or Adam(), dict(tied or {})
        self._compile, self._backends = partial(api.compile, backends=backends, threads=threads), backends
        self._checks, self._threads = check_numerics, threads
        base = self._with_ties()
        if kind not in LOSSES and kind not in values_of(base):
            near = did_you_mean(kind, [*LOSSES, *values_of(base)])
            raise ModelError(
                f"the loss '{kind}' is neither a value of the model nor one of {', '.join(LOSSES)}{near}", value=kind
            )
        self._whole = loss(base, kind, of=of) if kind in LOSSES else base
        self._loss = "loss" if kind in LOSSES else kind
        is_scaled = precision == "float16"
        trained = self._formed(PRECISIONS[precision], seed, is_scaled)
        known = {*weights_of(trained), *(self._quantized.growths if self._quantized else ())} - {*self._buffers}
        wanted = [name for name in constants_of(trained) if name in known]
        wanted = _matching(wanted, wrt, trained) if wrt is not None else wanted
        left = set(_matching(wanted, frozen, trained))
        self.weights = tuple(name for name in wanted if name not in left)
        if wanted and not self.weights:
            raise ModelError(f"there is nothing to train: all {len(wanted)} weights are frozen")
        self._update = Update(self._grouped(groups or {}), clip_norm, clip_value, accumulate, is_scaled)
        self.arrays: Arrays = self._initial(trained)
        """Weights, statistics and states of now; a step writes them where those of the step before it are."""
        self._before: Arrays = {}
        self.counts = Counts(scale=FIRST_SCALE if is_scaled else 1.0)
        source = f"{self._loss}_scaled" if is_scaled else self._loss

        def write(model: ir.Model) -> ir.Model:
            return self._updated_early(self._with_step(model, source, stop))

        self.step_model = recomputed(write, trained, source, recompute)
        self.program = self._compile(self.step_model)
        self._evaluation: Program | None = None

    # ---- The step as a model -------------------------------------------------------------------------------------

    def _with_ties(self) -> ir.Model:
        """Return the model with one weight where others are tied to it."""
        tensors = self._model.graph.initializers
        for name, other in self._tied.items():
            for one in (name, other):
                if one not in tensors:
                    raise ModelError(f"'{one}' is no weight of the model, so it cannot be tied", value=one)
            if tensors[name].shape != tensors[other].shape or tensors[name].dtype != tensors[other].dtype:
                raise ModelError(
                    f"'{name}' cannot be '{other}': {tensors[name].shape} is not {tensors[other].shape}", value=name
                )
        return edited(self._model, lambda proto: tie(proto.graph, self._tied)) if self._tied else self._model

    def _formed(self, narrow: int | None, seed: int, is_scaled: bool) -> ir.Model:
        """Return the model with its loss in the form in which it is trained."""
        self._buffers: dict[str, str] = {}
        self._draws = False

        def form(proto: onnx.ModelProto) -> None:
            self._draws = drop(proto.graph, seed)
            if narrow is not None:
                round_products(proto.graph, narrow)
            copy = onnx.GraphProto.FromString(proto.graph.SerializeToString())
            self._buffers.update(train_statistics(copy))  # of the graph itself with its gradients, which have a rule
            if is_scaled:
                _scale(proto.graph, self._loss)

        return edited(self._whole, form)

    def _grouped(self, groups: Mapping[str, Optimizer]) -> list[tuple[Optimizer, list[str]]]:
        """Return optimisers and their weights, the common one first."""
        found: dict[str, list[str]] = {pattern: [] for pattern in groups}
        rest: list[str] = []
        for name in self.weights:
            pattern = next((one for one in groups if fnmatchcase(name, one)), None)
            (rest if pattern is None else found[pattern]).append(name)
        empty = [pattern for pattern, names in found.items() if not names]
        if empty:
            raise ModelError(f"the group '{empty[0]}' has no weights; there are {', '.join(self.weights[:8])}")
        return [(self.optimizer, rest), *((groups[one], names) for one, names in found.items())]

    def _initial(self, model: ir.Model) -> Arrays:
        """Return weights, statistics and states before the first step."""
        tensors = model.graph.initializers
        found: Arrays = {}
        for name in (*self.weights, *self._buffers):
            tensor = tensors[name].const_value
            assert tensor is not None, name
            found[name] = np.array(tensor.numpy())
        for name in self.weights:
            found.update({f"{name}_{state}": np.zeros_like(found[name]) for state in self._update.states(name)})
        return found

    def _with_step(self, model: ir.Model, loss: str, stop: Sequence[str]) -> ir.Model:
        """Return a model with its gradients and the optimiser behind them, weights as inputs."""
        require_scalar(model, loss)
        values = values_of(model)
        for name in (RATE, NUMBER, LAST, *(f"{one}_next" for one in self.arrays if one not in self._buffers)):
            free(values, name)

        def more(graph: onnx.GraphProto) -> None:
            self._take(graph, list(self.arrays))
            graph.input.append(helper.make_tensor_value_info(RATE, TensorProto.FLOAT, []))
            graph.input.append(helper.make_tensor_value_info(NUMBER, TensorProto.INT64, []))
            if self._update.accumulate > 1:
                graph.input.append(helper.make_tensor_value_info(LAST, TensorProto.BOOL, []))
            said = self._update.write(graph, self._buffers)
            del graph.output[1:]
            graph.output.extend(helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in said)
            graph.output.extend(self._typed(name, "_next") for name in self.arrays)

        kept = [self._loss, *self._buffers.values()]
        wholes = composites_of(model, self._backends)
        form, own = train_statistics if self._buffers else None, frozenset(self.arrays)
        found = with_gradients(model, loss, self.weights, kept, stop, more, form, own, wholes)
        zero = notes_of(found)
        if len(zero) == len(self.weights):
            raise ModelError(f"there is nothing to train: all gradients are zero; {zero[0]}", value=self._loss)
        return found

    def _updated_early(self, model: ir.Model) -> ir.Model:
        """Let each weight be updated as soon as its gradient is there, in place: its memory is free from then on."""
        graph, ends = model.graph, {self._loss, *(f"{name}_grad" for name in self.weights)}
        last = {node for node in graph if any(one.name in ends for one in node.outputs)}
        before, places = set[ir.Node](), dict[ir.Node, int]()
        for node in reversed(list(graph)):
            if any(use.node in before or use.node in last for one in node.outputs for use in one.uses()):
                before.add(node)
        for place, node in enumerate(graph):
            producers = [one.producer() for one in node.inputs if one is not None]
            read = [places[one] for one in producers if one is not None]
            places[node] = place if node in before or not read else max(read)
        nodes = sorted(graph, key=lambda node: places[node])
        graph.remove(nodes)
        graph.extend(nodes)
        return model

    def _take(self, graph: onnx.GraphProto, names: Sequence[str]) -> None:
        """Let arrays be inputs of a graph, in place."""
        for name in names:
            for tensor in [one for one in graph.initializer if one.name == name]:
                graph.initializer.remove(tensor)
            for value in [one for one in graph.input if one.name == name]:
                graph.input.remove(value)
        graph.input.extend(self._typed(name) for name in names)

    def _typed(self, name: str, suffix: str = "") -> onnx.ValueInfoProto:
        array = self.arrays[name]
        return helper.make_tensor_value_info(
            f"{name}{suffix}", helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )

    # ---- Training ------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The number of steps that weights have taken."""
        return self.counts.steps

    def step(self, feeds: Mapping[str, Any], learning_rate: float | None = None) -> float:
        """Take one step with a batch, arrays by input; return the loss before it.

        With ``accumulate`` weights change after so many batches, and with a loss that is scaled only if gradients are
        finite.
        """
        require("Trainer.step", "feeds", feeds, ARRAYS)
        rate = self.optimizer.learning_rate if learning_rate is None else learning_rate
        require("Trainer.step", "learning_rate", rate, NOT_NEGATIVE)
        counts, given = self.counts, {**feeds, **self.arrays, RATE: np.float32(rate)}
        is_last = (counts.batches + 1) % self._update.accumulate == 0
        given[NUMBER] = np.array(counts.steps + 1, np.int64)
        if self._update.accumulate > 1:
            given[LAST] = np.array(is_last)
        if self._update.is_scaled:
            given[SCALE] = np.array(counts.scale, np.float32)
        if self._draws:
            given[DRAW] = np.array(counts.batches, np.int64)
        found = self.program.run(given, into={f"{name}_next": array for name, array in self._before.items()})
        if self._checks:
            self._require_finite(found, given)
        self._before, self.arrays = self.arrays, {name: np.asarray(found[f"{name}_next"]) for name in self.arrays}
        counts.batches += 1
        if is_last:
            self._count(bool(found.get("is_finite", True)))
        return float(np.asarray(found[self._loss]))

    def _require_finite(self, found: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Raise RunError, with the first node at fault, where the results of a step are not finite."""
        wrong = next((name for name, one in found.items() if not np.isfinite(np.asarray(one)).all()), None)
        if wrong is None:
            return
        inputs = {name: np.asarray(one) for name, one in given.items()}
        fault = check_numerics(self.step_model, inputs, of=self._loss, threads=self._threads, backends=self._backends)
        unseen = (
            f"'{wrong}' has a NaN or an infinity that no node makes of finite numbers where all values are kept: "
            "infinities are among the inputs, or what a backend fuses makes it"
        )
        said = unseen if fault is None else str(fault)
        raise RunError(
            f"step {self.counts.steps + 1} is not finite: {said}; weights are what they were before it",
            node="" if fault is None else fault.node,
            value=wrong if fault is None else fault.value,
        )

    def _count(self, is_taken: bool) -> None:
        """Count a step that was taken or left out, and let the scale of the loss follow."""
        counts = self.counts
        counts.steps += is_taken
        if not self._update.is_scaled:
            return
        counts.steady = counts.steady + 1 if is_taken else 0
        if not is_taken:
            counts.scale = max(counts.scale / 2, 1.0)
        elif counts.steady == GROWTH:
            counts.scale, counts.steady = counts.scale * 2, 0

    @takes(epochs=at_least(0), batch=at_least(1), seed=at_least(0), patience=optional(at_least(1)), progress=FLAG)
    def fit(
        self,
        data: Given,
        *,
        epochs: int = 1,
        batch: int = 32,
        seed: int = 0,
        schedule: Callable[[int], float] | None = None,
        each: Callable[[int, float], bool | None] | None = None,
        validation: Given | None = None,
        patience: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> list[float]:
        """Train with arrays by input, stacked along the first axis, drawn anew each epoch; return the mean losses.

        ``data`` may be all that `graft.quantize` takes, an iterable of mappings or a folder, say: the rows of each
        piece are drawn. What is left behind whole batches is left out. ``schedule`` gives the learning rate of a step
        by its number from 0 on. ``each`` is told epoch and loss, and ends the training by returning True.

        With ``validation`` (data that is held out) the losses are those of that data; with ``patience`` the training
        ends when they got no better for so many epochs, and goes back to the weights of the best. A ``checkpoint`` is
        written after each epoch; a training that `resume` begins there goes on in the same order of data, which
        follows from ``seed`` and the number of the epoch. ``progress`` shows a bar on standard error.
        """
        if patience is not None and validation is None:
            raise ModelError("patience needs the losses of held-out data; give validation, too")
        losses: list[float] = []
        given = Batches(data, self._whole, batch, whole=True)
        best, kept = np.inf, self.state()
        for epoch in range(epochs):
            order = np.random.default_rng((seed, self.counts.epochs))
            bar = Progress(f"epoch {epoch + 1}/{epochs}", given.total) if progress else None
            found = []
            for one in given.epoch(order):
                found.append(self.step(one.feeds, None if schedule is None else schedule(self.steps)))
                if bar is not None:
                    bar.show(len(found), float(np.mean(found)))
            if bar is not None:
                bar.end()
            self.counts.epochs += 1
            losses.append(float(np.mean(found)) if validation is None else self.evaluate(validation, batch=batch))
            if losses[-1] < best:
                best = losses[-1]
                kept = self.state() if patience is not None else kept
            if checkpoint is not None:
                self.save(checkpoint)
            if each is not None and each(epoch, losses[-1]):
                break
            if patience is not None and len(losses) - 1 - losses.index(min(losses)) >= patience:
                break
        if patience is not None and losses:
            self.restore(kept)
        return losses

    def evaluate(self, data: Given, *, batch: int = 32) -> float:
        """Return the mean loss over data with the weights of now, as in inference; whole batches alone count."""
        names = [name for name in (*self.weights, *self._buffers) if name in self._whole.graph.initializers]
        if self._evaluation is None:

            def edit(proto: onnx.ModelProto) -> None:
                self._take(proto.graph, names)
                output = next(one for one in proto.graph.output if one.name == self._loss)
                del proto.graph.output[:]
                proto.graph.output.append(output)

            self._evaluation = self._compile(edited(self._whole, edit, without=frozenset(names)))
        given = {name: self.arrays[name] for name in names}
        batches = Batches(data, self._whole, batch, whole=True)
        found = [self._evaluation.run({**one.feeds, **given})[self._loss] for one in batches]
        return float(np.mean([np.asarray(one) for one in found]))

    @property
    def model(self) -> ir.Model:
        """The model with the weights and statistics of now, without loss; a quantised one in codes, as it came."""
        sources = {name: name for name in (*self.weights, *self._buffers)}
        sources |= {name: other for name, other in self._tied.items() if other in sources}
        if self._quantized is not None:
            return self._quantized.written({name: self.arrays[source] for name, source in sources.items()})
        copy = self._model.clone()
        for name, source in sources.items():
            copy.graph.initializers[name].const_value = ir.tensor(self.arrays[source].copy(), name=name)
        return load(ir.to_proto(copy))

    # ---- What a training goes on from ----------------------------------------------------------------------------

    def state(self) -> Arrays:
        """Return all that a training goes on from: weights, statistics, states of the optimiser, counts."""
        return {**{name: array.copy() for name, array in self.arrays.items()}, COUNTS: np.array(astuple(self.counts))}

    @takes(state=ARRAYS)
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave, to the bit. Raises ModelError for that of another model or optimiser."""
        wanted = {COUNTS, *self.arrays}
        if state.keys() != wanted or any(state[one].shape != array.shape for one, array in self.arrays.items()):
            names = sorted(wanted ^ state.keys()) or ["shapes"]
            raise ModelError(f"the state is of another model or optimiser: {', '.join(names[:3])} differ")
        self.arrays = {name: np.array(state[name]) for name in self.arrays}
        steps, batches, epochs, scale, steady = (float(one) for one in state[COUNTS])
        self.counts = Counts(int(steps), int(batches), int(epochs), scale, int(steady))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, a safetensors file: whole, or not at all."""
        write_checkpoint(path, self.state(), {"model": self._model.graph.name or "", "structure": self._structure()})

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint, to the bit. Raises ModelError for one of another model, and for a damaged one."""
        state, facts = read_checkpoint(path)
        if facts.get("structure") != self._structure():
            raise ModelError(
                f"the checkpoint '{path}' is of another model, '{facts.get('model')}', than the one that is trained, "
                f"'{self._model.graph.name}': operators or names differ",
                model=facts.get("model"),
            )
        self.restore(state)

    def _structure(self) -> str:
        """Return a digest of the model without the numbers in it."""
        nodes = [node.SerializeToString(deterministic=True) for node in skeleton_of_model(self._model).graph.node]
        return hashlib.sha256(b"\0".join(nodes)).hexdigest()


def _matching(names: Sequence[str], patterns: Sequence[str], model: ir.Model) -> list[str]:
    """Return the weights that names or patterns say; raise ModelError for one that says none."""
    weights, found = constants_of(model), []
    for pattern in patterns:
        exact = [pattern] if pattern in weights else []
        fitting = exact or [name for name in names if fnmatchcase(name, pattern)]
        if not fitting:
            hint = did_you_mean(pattern, weights)
            raise ModelError(f"'{pattern}' is no weight of the model, so it cannot be trained{hint}", value=pattern)
        found += [name for name in fitting if name not in found]
    return found


def _scale(graph: onnx.GraphProto, name: str) -> None:
    """Add the loss times its scale as an output, in place."""
    graph.input.append(helper.make_tensor_value_info(SCALE, TensorProto.FLOAT, []))
    graph.node.append(helper.make_node("Mul", [name, SCALE], [f"{name}_scaled"], f"{name}_scaled"))
    graph.output.append(helper.make_tensor_value_info(f"{name}_scaled", TensorProto.FLOAT, []))
