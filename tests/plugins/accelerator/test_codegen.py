"""Random layers as programs: proof, model and both simulators, against what the layers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from graft.errors import CompileError
from graft.plugins.accelerator import model
from graft.plugins.accelerator.codegen import lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.layers import (
    Activation,
    Addition,
    Concatenation,
    Convolution,
    Layer,
    Pooling,
    PoolingKind,
    Product,
    Requantization,
    Requantize,
    inputs_of,
    packed,
    unpacked,
)
from graft.plugins.accelerator.proof import prove
from graft.plugins.accelerator.simulator import Run, run_cycles, run_functional
from tests.plugins.accelerator.layer_reference import evaluate

Array = npt.NDArray[Any]
DEFAULT = Configuration()
SMALL = Configuration(input_bytes=4096, weight_bytes=32768, accumulator_bytes=16384, micro_op_bytes=8192)
"""256 entries of inputs and accumulators, 128 of weights: a few rows of a layer are a tile."""
BYTES = st.integers(-128, 127)
SCALES = st.integers(1, 60).map(lambda n: float(np.float32(n / 97)))


def run_layers(
    layers: Sequence[Layer], outputs: Sequence[str], configuration: Configuration, buffers: int = 2, seed: int = 0
) -> Run:
    """Lower, prove, run on both simulators with random inputs, and compare every output; return the timed run."""
    rng = np.random.default_rng(seed)
    lowered = lower(layers, outputs, configuration, buffers)
    prove(lowered.program)
    made = {layer.output.name for layer in layers}
    given_ = {one.name: one for layer in layers for one in inputs_of(layer) if one.name not in made}
    values = {name: rng.integers(-128, 128, one.shape).astype(np.int8) for name, one in given_.items()}
    inputs = {name: packed(values[packing.tensor.name], packing) for name, packing in lowered.inputs.items()}
    for layer in layers:
        values[layer.output.name] = evaluate(layer, values)
    timed, shuffled = run_cycles(lowered.program, inputs), run_functional(lowered.program, inputs, seed)
    for name in outputs:
        for run in (timed, shuffled):
            found = unpacked(run.outputs[name], lowered.outputs[name])
            assert np.array_equal(found, values[name]), name
    if sum(one.products for one in lowered.layers) < 4000:
        assert model.run(lowered.program, inputs) == timed.outputs
    return timed


@st.composite
def tensors(
    draw: st.DrawFn, name: str, channels: int, size: tuple[int, int] | None = None, batch: int | None = None
) -> Activation:
    height, width = size or (draw(st.integers(1, 13)), draw(st.integers(1, 13)))
    count = draw(st.sampled_from((1, 1, 1, 2))) if batch is None else batch
    return Activation(name, channels, height, width, count, draw(SCALES), draw(BYTES))


@st.composite
def requantizes(draw: st.DrawFn, outputs: int, zero: int) -> Requantize:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    count = draw(st.sampled_from((1, outputs)))
    wide = draw(st.booleans())
    multiplier = rng.uniform(1e-5, 1e-2, count).astype(np.float32)
    divisor = 1.0 if wide else float(np.float32(rng.uniform(0.1, 2)))
    lower_ = draw(st.sampled_from((-128, -128, zero, -40)))
    upper = draw(st.sampled_from((127, 127, 90)))
    bias = rng.integers(-9999, 9999, count).astype(np.int32)
    return Requantize(bias, multiplier, divisor, wide, min(lower_, upper), upper)


def extent(size: int, kernel: int, stride: int, dilation: int, pads: int) -> int:
    return (size + pads - dilation * (kernel - 1) - 1) // stride + 1


@st.composite
def windows(draw: st.DrawFn, source: Activation, most: int = 4) -> tuple[dict[str, Any], tuple[int, int]]:
    """Kernel, strides, pads and dilations, and the extents of the output."""
    kernel = (draw(st.integers(1, most)), draw(st.integers(1, most)))
    fields: dict[str, Any] = {
        "strides": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(4)),
        "dilations": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
    }
    size = [
        extent(source.shape[2 + axis], kernel[axis], fields["strides"][axis], fields["dilations"][axis],
               fields["pads"][axis] + fields["pads"][axis + 2])
        for axis in (0, 1)
    ]  # fmt: skip
    assume(min(size) >= 1)
    return {"kernel": kernel, **fields}, (size[0], size[1])


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    kind = draw(st.sampled_from(("dense", "dense", "depthwise", "grouped")))
    groups = {"dense": 1, "depthwise": draw(st.integers(2, 40)), "grouped": draw(st.integers(2, 5))}[kind]
    by_group = 1 if kind == "depthwise" else draw(st.integers(1, 36 // groups))
    channels = groups * by_group
    outputs = groups * (1 if kind == "depthwise" else draw(st.integers(1, 40 // groups)))
    source = draw(tensors("x", channels))
    fields, size = draw(windows(source))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    most = draw(st.sampled_from((128, 128, 256)))
    weights = rng.integers(-most, most, (outputs, by_group, *fields.pop("kernel")))
    target = draw(tensors("y", outputs, size, source.batch))
    requantize = draw(requantizes(outputs, target.zero_point))
    return Convolution("layer", source, target, weights, requantize, groups=groups, **fields)


@st.composite
def products(draw: st.DrawFn) -> Product:
    m, k, n = (draw(st.integers(1, 40)) for _ in range(3))
    left = draw(tensors("x", k, (m, 1)))
    output = draw(tensors("y", n, (m, 1), left.batch))
    right: Activation | Array
    if draw(st.booleans()):
        right = draw(tensors("w", n, (k, 1), left.batch))
    else:
        right = np.random.default_rng(draw(st.integers(0, 1 << 30))).integers(-255, 256, (k, n))
    return Product("layer", left, right, output, draw(requantizes(n, output.zero_point)))


@st.composite
def poolings(draw: st.DrawFn) -> Pooling:
    source = draw(tensors("x", draw(st.integers(1, 40))))
    kind = draw(st.sampled_from(PoolingKind))
    if draw(st.booleans()):
        size = (source.height, source.width)
        output = draw(tensors("y", source.channels, (1, 1), source.batch))
        return Pooling("layer", kind, source, output, size)
    fields, size = draw(windows(source, 3))
    kernel = fields["kernel"]
    fields["pads"] = tuple(min(pad, kernel[i % 2] - 1) for i, pad in enumerate(fields["pads"]))
    assume(fields["dilations"] == (1, 1) or not any(fields["pads"]))
    if kind is PoolingKind.AVERAGE:
        fields["counts_padding"] = True
    size = tuple(
        extent(source.shape[2 + axis], kernel[axis], fields["strides"][axis], fields["dilations"][axis],
               fields["pads"][axis] + fields["pads"][axis + 2])
        for axis in (0, 1)
    )  # fmt: skip
    assume(min(size) >= 1)
    output = draw(tensors("y", source.channels, size, source.batch))
    return Pooling("layer", kind, source, output, **fields)


@st.composite
def others(draw: st.DrawFn) -> Layer:
    channels = draw(st.integers(1, 40))
    first = draw(tensors("x", channels))
    size, batch = (first.height, first.width), first.batch
    limits = sorted((draw(BYTES), draw(BYTES)))
    kind = draw(st.sampled_from((Addition, Requantization, Concatenation)))
    if kind is Addition:
        second, output = draw(tensors("w", channels, size, batch)), draw(tensors("y", channels, size, batch))
        return Addition("layer", first, second, output, *limits)
    if kind is Requantization:
        return Requantization("layer", first, draw(tensors("y", channels, size, batch)), *limits)
    more = [draw(tensors(f"w{i}", draw(st.sampled_from((16, 32, 5))), size, batch)) for i in range(2)]
    output = draw(tensors("y", channels + sum(one.channels for one in more), size, batch))
    return Concatenation("layer", (first, *more), output, *limits)


SLOWLY = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
MACHINES = st.sampled_from((DEFAULT, SMALL))


@SLOWLY
@given(layer=convolutions() | products() | poolings() | others(), machine=MACHINES, buffers=st.integers(1, 2))
def test_a_random_layer_is_bit_equal(layer, machine, buffers):
    try:
        lower([layer], ["y"], machine, buffers)
    except CompileError as error:
        assume("size" in str(error) and machine is SMALL)
    run_layers([layer], ["y"], machine, buffers)
