"""Random layers as programs: proof, model and both simulators, against what the layers mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from graft.errors import CompileError
from graft.plugins.accelerator import model
from graft.plugins.accelerator.codegen import check, lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.layers import (
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
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.simulator import Run, cycles_of, run_cycles, run_functional
from tests.plugins.accelerator.layer_reference import evaluate

Array = npt.NDArray[Any]
DEFAULT = Configuration()
SMALL = Configuration(input_bytes=4096, weight_bytes=32768, accumulator_bytes=16384, micro_op_bytes=8192)
"""256 entries of inputs and accumulators, 128 of weights: a few rows of a layer are a tile."""
NARROW = Configuration(block_in=8, block_out=8, input_bytes=4096, weight_bytes=8192, accumulator_bytes=16384)
"""Blocks of 8 x 8: kernels of 3 x 3 take two entries of weights lane by lane."""
BYTES = st.integers(-128, 127)
SCALES = st.integers(1, 60).map(lambda n: float(np.float32(n / 97)))


def run_layers(
    layers: Sequence[Layer], outputs: Sequence[str], configuration: Configuration, buffers: int = 2, seed: int = 0
) -> Run:
    """Lower, prove, run on both simulators with random inputs, and compare every output; return the timed run."""
    rng = np.random.default_rng(seed)
    lowered = lower(layers, outputs, configuration, buffers)
    prove(lowered.program, lowered.source)
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
    if sum(one.products + one.moves for one in lowered.layers) < 1000:
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
MACHINES = st.sampled_from((DEFAULT, SMALL, NARROW, replace(SMALL, accumulator_latency=5)))


@SLOWLY
@given(layer=convolutions() | products() | poolings() | others(), machine=MACHINES, buffers=st.integers(1, 2))
def test_a_random_layer_is_bit_equal(layer, machine, buffers):
    try:
        lower([layer], ["y"], machine, buffers)
    except CompileError as error:
        assert "size" in str(error)
        assert machine is not DEFAULT
        return
    run_layers([layer], ["y"], machine, buffers)


@pytest.mark.parametrize("groups", [1, 2])
def test_windows_that_read_padding_alone_are_bit_equal(groups):
    x, y = (Activation(name, 2, 1, 1, scale=0.01) for name in "xy")
    requantize = Requantize(np.array([-3844], np.int32), np.array([0.00637], np.float32), 0.6)
    weights = np.array([89, 35] * (2 // groups)).reshape(2, 2 // groups, 1, 1)
    layer = Convolution("layer", x, y, weights, requantize, (2, 1), (1, 0, 0, 0), groups=groups)
    run_layers([layer], ["y"], DEFAULT, 1)


# ---- Several layers -----------------------------------------------------------------------------------------------


def convolution(name: str, source: Activation, outputs: int, kernel: int = 3, stride: int = 1) -> Convolution:
    rng = np.random.default_rng(outputs)
    size = (source.height + 2 * (kernel // 2) - kernel) // stride + 1
    weights = rng.integers(-128, 128, (outputs, source.channels, kernel, kernel))
    requantize = Requantize(multiplier=rng.uniform(1e-4, 1e-3, outputs).astype(np.float32), lower=-9)
    output = Activation(name, outputs, size, size, scale=0.3, zero_point=-9)
    return Convolution(name, source, output, weights, requantize, (stride, stride), (kernel // 2,) * 4)


IMAGE = Activation("image", 3, 20, 20, scale=0.1, zero_point=7)


def residual_network() -> list[Layer]:
    """A first layer of few channels, a maximum, two blocks with additions, one of them of another size, and a mean."""
    first = convolution("first", IMAGE, 24, 5, 2)
    pooled = Activation("pooled", 24, 5, 5, scale=0.3, zero_point=-9)
    a = convolution("a", pooled, 24)
    b = convolution("b", a.output, 24)
    sum_ = Activation("sum", 24, 5, 5, scale=0.4, zero_point=2)
    shortcut, c = convolution("shortcut", sum_, 40, 1, 2), convolution("c", sum_, 40, 3, 2)
    total = Activation("total", 40, 3, 3, scale=0.6)
    mean = Activation("mean", 40, scale=0.2)
    return [
        first,
        Pooling("maximum", PoolingKind.MAX, first.output, pooled, (3, 3), (2, 2), (1, 1, 1, 1)),
        a,
        b,
        Addition("add", b.output, pooled, sum_, lower=2),
        c,
        shortcut,
        Addition("add2", c.output, shortcut.output, total),
        Pooling("average", PoolingKind.AVERAGE, total, mean, (3, 3)),
        Product("classes", mean, np.random.default_rng(1).integers(-99, 99, (40, 10)), Activation("classes", 10),
                Requantize(divisor=50.0)),
    ]  # fmt: skip


@pytest.mark.parametrize("machine", [DEFAULT, SMALL, NARROW])
@pytest.mark.parametrize("buffers", [1, 2])
def test_a_network_is_one_program_whose_outputs_are_bit_equal(machine, buffers):
    run_layers(residual_network(), ["classes", "sum"], machine, buffers)


def test_an_addition_is_done_by_the_later_product_before_it():
    lowered = lower(residual_network(), ["classes"], DEFAULT)
    assert [one.name for one in lowered.layers] == [
        "first", "maximum", "a", "b", "c", "shortcut", "average", "classes",
    ]  # fmt: skip


def test_what_is_wanted_outside_is_not_fused():
    lowered = lower(residual_network(), ["classes", "b"], DEFAULT)
    assert "add" in [one.name for one in lowered.layers]


def test_a_first_layer_takes_patches():
    lowered = lower([convolution("y", IMAGE, 64, 7, 2)], ["y"], DEFAULT)
    (packing,) = lowered.inputs.values()
    assert packing.kernel == (7, 7)
    assert lowered.layers[0].products == 4 * 10 * 100  # 147 of 160 lanes
    assert lowered.layers[0].useful == 64 * 147 * 100 / 256


def test_tensors_between_layers_share_the_workspace():
    layers: list[Layer] = [convolution("t0", Activation("x", 16, 16, 16), 16)]
    for number in range(1, 6):
        layers.append(convolution(f"t{number}", layers[-1].output, 16))
    lowered = lower(layers, ["t5"], DEFAULT)
    assert lowered.program.tensor("workspace").size == 2 * 16 * 16 * 16


def test_two_buffers_hide_transfers():
    layer = convolution("y", Activation("x", 64, 28, 28), 64)
    cycles = [run_layers([layer], ["y"], DEFAULT, buffers).counters.cycles for buffers in (1, 2)]
    assert cycles[1] < 0.9 * cycles[0]


def test_trials_on_the_simulator_find_what_the_model_does_not():
    layer = convolution("y", Activation("x", 128, 14, 14), 64, kernel=1)
    model, tried = (lower([layer], ["y"], DEFAULT, trials=trials) for trials in (0, 12))
    prove(tried.program, tried.source)
    assert cycles_of(tried.program).counters.cycles < cycles_of(model.program).counters.cycles


@pytest.mark.parametrize(("channels", "size", "kernel"), [(64, 28, 3), (128, 7, 3), (128, 14, 1)])
def test_sums_are_interleaved_where_a_machine_does_not_forward_them(channels, size, kernel):
    layer = convolution("y", Activation("x", channels, size, size), channels, kernel)
    forwarding, waiting = (
        run_layers([layer], ["y"], replace(DEFAULT, accumulator_latency=latency)).counters.cycles for latency in (1, 4)
    )
    assert waiting < 1.02 * forwarding


# ---- What is refused ----------------------------------------------------------------------------------------------


def test_a_layer_that_fits_in_no_tile_is_refused_with_the_numbers():
    source = Activation("x", 16, 64, 64)
    layer = Convolution(
        "wide", source, Activation("y", 16, 1, 1), np.ones((16, 16, 64, 64), np.int8), Requantize()
    )  # fmt: skip
    with pytest.raises(CompileError) as caught:
        check(layer, SMALL)
    assert str(caught.value) == (
        "accelerator: size: no tile of 'wide' (kernel 64 x 64, 1 blocks of 64 x 64 to 1 of 1 x 1) fits into 128 "
        "inputs, 64 weights and 83 accumulators"
    )


def test_means_of_different_counts_are_refused():
    layer = Pooling("mean", PoolingKind.AVERAGE, IMAGE, Activation("y", 3, 20, 20), (3, 3), pads=(1, 1, 1, 1))
    with pytest.raises(CompileError) as caught:
        check(layer, DEFAULT)
    assert str(caught.value) == (
        "accelerator: 'mean': attribute: a mean whose windows have different numbers of places inside the input"
    )


def test_weights_made_in_the_same_program_are_refused():
    made = convolution("made", IMAGE, 5, 3)
    flat = Activation("flat", 20, 20, 1)
    product_ = Product("product", flat, made.output, Activation("y", 5, 20, 1), Requantize())
    with pytest.raises(CompileError) as caught:
        lower([made, product_], ["y"], DEFAULT)
    assert str(caught.value) == "accelerator: 'product': operand: weights 'made' are computed in the same program"


def test_a_machine_whose_results_are_no_inputs_is_refused():
    with pytest.raises(CompileError) as caught:
        check(convolution("y", IMAGE, 5), Configuration(block_in=8, input_bytes=8192, weight_bytes=65536))
    assert str(caught.value) == (
        "accelerator: configuration: layers need blocks of 1 x n x n, and these are 1 x 8 x 16"
    )
