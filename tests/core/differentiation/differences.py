"""Gradients of a model beside differences of what it computes, in float64 wherever its operators take that."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graft

DOMAIN = "ai.onnx.preview.training"
FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
STEPS = {np.dtype(np.float64): 2e-5, np.dtype(np.float32): 2e-2}
"""How far differences are apart, by the type that is differentiated."""
BOUNDS = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 3e-3}
FIXED = onnx.defs.OpSchema.DifferentiationCategory.NonDifferentiable
LEFT_OUT = frozenset({"Bernoulli", "If", "Loop", "Scan", "SequenceMap"})
"""Cases of random numbers and of sequences."""


IN_SINGLES = frozenset({"MeanVarianceNormalization"})
"""Operators whose function by ONNX is of float32 alone."""


@dataclass(frozen=True, slots=True)
class Case:
    """One node of ONNX's own cases: what it is fed, what it is differentiated by, and the shapes of results."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    by: tuple[str, ...]
    results: Mapping[str, tuple[int, ...]]

    @property
    def operator(self) -> str:
        """The operator of the case."""
        return str(self.model.graph.node[0].op_type)


@cache
def cases() -> dict[str, list[Case]]:
    """The cases of ONNX that have something to differentiate, by operator."""
    found: dict[str, list[Case]] = {}
    for case in _cases():
        found.setdefault(case.operator, []).append(case)
    return found


def _cases() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        tests = load_model_tests(kind="node")
    for test in tests:
        model = test.model
        if model is None or len(model.graph.node) != 1 or model.graph.node[0].domain:
            continue
        inputs, outputs = test.data_sets[0]
        values = (*model.graph.input, *model.graph.output)
        arrays = all(value.type.HasField("tensor_type") for value in values)
        arrays = arrays and all(isinstance(array, np.ndarray) for array in (*inputs, *outputs))
        if arrays and model.graph.node[0].op_type not in LEFT_OUT:
            case = _case(test.name, _in_doubles(model), inputs, outputs)
            if case.by and case.results:
                yield case


def _case(name: str, model: onnx.ModelProto, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Case:
    (node,) = model.graph.node
    formals = _schema(model).inputs
    feeds, by = {}, []
    for value, array in zip(model.graph.input, inputs, strict=True):
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        formal = formals[min(list(node.input).index(value.name), len(formals) - 1)]
        if kind in STEPS and array.size and formal.differentiation_category != FIXED and np.isfinite(array).all():
            array = off_kinks(array.astype(np.float64), 1)
            by.append(value.name)
        feeds[value.name] = np.asarray(array).astype(kind)
    for value in [one for one in model.graph.input if one.name not in by]:
        model.graph.initializer.append(numpy_helper.from_array(feeds.pop(value.name), value.name))
        model.graph.input.remove(value)
    kinds = {feeds[one].dtype for one in by}
    results = {
        value.name: array.shape
        for value, array in zip(model.graph.output, outputs, strict=True)
        if helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) in kinds
    }
    return Case(name, model, feeds, tuple(by), results)


def _schema(model: onnx.ModelProto) -> onnx.defs.OpSchema:
    node = model.graph.node[0]
    opset = next(entry.version for entry in model.opset_import if entry.domain == node.domain)
    return onnx.defs.get_schema(node.op_type, opset, node.domain)


def _in_doubles(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of one node in float64 wherever its operator takes that; what an attribute fixes stays."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (node,) = copy.graph.node
    if node.op_type in IN_SINGLES:
        return copy
    schema = _schema(copy)
    for formals, names, values in (
        (schema.inputs, node.input, copy.graph.input), (schema.outputs, node.output, copy.graph.output)
    ):  # fmt: skip
        takes = [formals[min(place, len(formals) - 1)].types for place in range(len(names))]
        wide = {name for name, types in zip(names, takes, strict=True) if "tensor(double)" in types}
        for value in values:
            if value.type.tensor_type.elem_type in FLOATS and value.name in wide:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "softmax_precision") and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
    return copy


def off_kinks(array: np.ndarray, seed: int) -> np.ndarray:
    """Return an array moved a little, so that nothing is 0 and no two elements are equal."""
    rng = np.random.default_rng(seed)
    apart, aside = rng.uniform(0, 0.02, array.shape), rng.uniform(0.02, 0.05, array.shape)
    return np.asarray(array * (1 + apart) + (array == 0) * aside)


def with_gradients(
    model: onnx.ModelProto, results: Mapping[str, tuple[int, ...]], by: Sequence[str]
) -> onnx.ModelProto:
    """Return a model of a loss (a drawn weight for each element of results) and its gradients by some inputs."""
    rng = np.random.default_rng(7)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph, parts = copy.graph, []
    for name, shape in results.items():
        graph.initializer.append(numpy_helper.from_array(rng.uniform(-1, 1, shape), f"{name}__w"))
        graph.node.append(helper.make_node("Cast", [name], [f"{name}__d"], to=TensorProto.DOUBLE))
        graph.node.append(helper.make_node("Mul", [f"{name}__d", f"{name}__w"], [f"{name}__p"]))
        graph.node.append(helper.make_node("ReduceSum", [f"{name}__p"], [f"{name}__s"], keepdims=0))
        parts.append(f"{name}__s")
    graph.node.append(helper.make_node("Sum", parts, ["loss__"]))
    gradients = [f"{name}__g" for name in by]
    graph.node.append(helper.make_node("Gradient", by, gradients, domain=DOMAIN, xs=by, y="loss__"))
    types = {value.name: value.type for value in graph.input}
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("loss__", TensorProto.DOUBLE, []))
    graph.output.extend(helper.make_value_info(one, types[name]) for one, name in zip(gradients, by, strict=True))
    if all(entry.domain != DOMAIN for entry in copy.opset_import):
        copy.opset_import.add(domain=DOMAIN, version=1)
    return copy


def error(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], by: Sequence[str]) -> float:
    """Return how far gradients are from the difference along a drawn direction, as a share of their bound."""
    rng = np.random.default_rng(11)
    program = graft.compile(model, ["llvm", "reference"], threads=1, cache=False)
    results = program.run(dict(feeds))
    loss, worst = abs(float(np.asarray(results["loss__"]))), 0.0
    for name in by:
        kind = feeds[name].dtype
        way, step = rng.uniform(-1, 1, feeds[name].shape), STEPS[kind]

        def difference(
            step: float, name: str = name, way: np.ndarray = way, kind: np.dtype[np.floating] = kind
        ) -> float:
            ends = ((feeds[name] + side * step * way).astype(kind) for side in (1, -1))
            up, down = (float(np.asarray(program.run({**feeds, name: end})["loss__"])) for end in ends)
            return (up - down) / (2 * step)

        numeric = (4 * difference(step / 2) - difference(step)) / 3
        gradient = np.asarray(results[f"{name}__g"])
        assert (gradient.shape, gradient.dtype) == (feeds[name].shape, kind)
        assert np.isfinite(numeric)
        scale = float(np.sum(np.abs(gradient * way))) + 1e-3 * loss + 1e-6
        worst = max(worst, abs(float(np.sum(gradient * way)) - numeric) / scale / BOUNDS[kind])
    return worst


def of_text(
    text: str, shapes: Mapping[str, tuple[int, ...]], *, low: float = -1.0, result: tuple[int, ...] | None = None
) -> float:
    """Return the `error` of nodes that make ``y`` of inputs in float64; ``result`` is its shape, if need be."""
    rng = np.random.default_rng(5)
    inputs = ", ".join(f"double[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    header = f'<ir_version: 10, opset_import: ["" : 24, "{DOMAIN}" : 1]>'
    model = onnx.parser.parse_model(f"{header} g ({inputs}) => (double[] y) {{ {text} }}")
    feeds = {name: np.asarray(rng.uniform(low, low + 2, shape)) for name, shape in shapes.items()}
    if result is None:
        model.graph.output[0].type.tensor_type.ClearField("shape")
        (found,) = graft.compile(model, ["llvm", "reference"], threads=1, cache=False).run(feeds).values()
        result = np.asarray(found).shape
    else:
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.DOUBLE, result))
    return error(with_gradients(model, {"y": result}, list(shapes)), feeds, list(shapes))
