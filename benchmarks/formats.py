"""Models in other formats than float32, beside each peer, in turns in one run.

    python -m benchmarks.formats [--formats float16,qdq ...] [--families unet,yolo ...] [--symbolic] [--threads 1]
                                 [--seconds 1] [--against onnxruntime,openvino]

Families of the zoo and models of the suite become files as exporters and ONNX Runtime's own tools write them: converted
to float16 or bfloat16, quantised statically, dynamically or by their weights alone. ``error`` and ``theirs`` are the
largest differences of Graft and of the fastest peer to ONNX Runtime without optimisations (where a model has 16-bit
floats, to the float32 one that it was made from), relative to the largest number; ``of best`` is our time by that of
the fastest peer, round by round. ``--symbolic`` lets the first axis of the inputs be a symbol.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper, version_converter

import graft
from benchmarks.data.quantize import quantized as static_model
from benchmarks.families.all import FAMILIES
from benchmarks.families.table import difference
from benchmarks.zoo import NAMES, model
from graft.compiler.driver import prepare
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.measure.latency import measure, program_run
from graft.measure.peers.peer_table import Run, installed, peer
from graft.measure.peers.runtimes import onnxruntime_call

CHOSEN = (
    "mobilenet_v2", "light_squeezenet", "efficientnet", "regnet", "unet", "deeplab", "yolo", "monodepth", "mixer",
    "distilbert", "masked_encoder", "cached_decoder", "recurrent_speech", "wavenet", "vocoder",
)  # fmt: skip
"""Families that differ in what they are made of."""
OPSETS = {TensorProto.BFLOAT16: 22}
"""The opset from which on convolutions take a type."""
PEERS = ("onnxruntime", "openvino")
ROUNDS = 5


def float_model(name: str) -> onnx.ModelProto:
    """Return a family of the zoo, or a model of the suite, in float32."""
    return ir.to_proto(model(name)) if name in NAMES else FAMILIES[name]()


# ---- Conversions ----


def in_16_bits(source: onnx.ModelProto, kind: int, *, keeps_ends: bool = False) -> onnx.ModelProto:
    """Return a model whose float32 tensors are of another type; ``keeps_ends`` leaves inputs and outputs as they are.

    What operators want in float32, such as the scales of Resize, stays.
    """
    converted = version_converter.convert_version(source, OPSETS[kind]) if kind in OPSETS else onnx.ModelProto()
    if kind not in OPSETS:
        converted.CopyFrom(source)
    graph = converted.graph
    wide = {
        node.input[place] for node in graph.node for place in _WIDE.get(node.op_type, ()) if place < len(node.input)
    }
    for tensor in graph.initializer:
        if tensor.name not in wide:
            _convert(tensor, kind)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _convert(attribute.t, kind)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = kind
    del graph.value_info[:]
    for values, ends in ((graph.input, "input"), (graph.output, "output")):
        for value in values:
            tensor = value.type.tensor_type
            if tensor.elem_type != TensorProto.FLOAT:
                continue
            if not keeps_ends:
                tensor.elem_type = kind
            else:
                _cast_end(graph, value.name, ends, kind)
    return converted


_WIDE: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "Upsample": (1,)}


def _convert(tensor: TensorProto, kind: int) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        numbers = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
        tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))


def _cast_end(graph: onnx.GraphProto, name: str, end: str, kind: int) -> None:
    inner = f"{name}_narrow"
    for node in graph.node:
        for names in (node.input, node.output):
            for place, one in enumerate(names):
                if one == name:
                    names[place] = inner
    if end == "input":
        graph.node.insert(0, helper.make_node("Cast", [name], [inner], to=kind))
    else:
        graph.node.append(helper.make_node("Cast", [inner], [name], to=TensorProto.FLOAT))


# ---- What the tools of ONNX Runtime make ----


def quantized(source: onnx.ModelProto, *, signed: bool = False, operators: bool = False) -> onnx.ModelProto:
    """Return a model with 8-bit weights, a scale for each channel, and 8-bit activations, in QDQ or QLinear form."""
    return ir.to_proto(static_model(graft.load(source), signed=signed, operators=operators))


def dynamic(source: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose products quantise their activations as they come (MatMulInteger, ConvInteger)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory() as folder:
        before, after = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(ir.to_proto(prepare(graft.load(source))), before)
        quantize_dynamic(before, after, per_channel=True, weight_type=QuantType.QInt8)
        return onnx.load(after)


def weight_only(source: onnx.ModelProto, bits: int, *, operators: bool) -> onnx.ModelProto:
    """Return a model whose products have blocks of 32 weights of so many bits: MatMulNBits, or DequantizeLinear."""
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    form = QuantFormat.QOperator if operators else QuantFormat.QDQ
    settings = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, bits=bits, quant_format=form)
    quantizer = MatMulNBitsQuantizer(ir.to_proto(prepare(graft.load(source))), algo_config=settings)
    quantizer.process()
    found: onnx.ModelProto = quantizer.model.model
    return found


FORMATS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "float32": lambda one: one,
    "float16": lambda one: in_16_bits(one, TensorProto.FLOAT16),
    "float16_ends": lambda one: in_16_bits(one, TensorProto.FLOAT16, keeps_ends=True),
    "bfloat16": lambda one: in_16_bits(one, TensorProto.BFLOAT16, keeps_ends=True),
    "qdq": quantized,
    "qdq_signed": lambda one: quantized(one, signed=True),
    "qoperator": lambda one: quantized(one, operators=True),
    "dynamic": dynamic,
    "int8_weights": lambda one: weight_only(one, 8, operators=True),
    "int4_weights": lambda one: weight_only(one, 4, operators=True),
    "int4_blocks": lambda one: weight_only(one, 4, operators=False),
}


def with_batch(source: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose inputs have a symbol for their first axis, as exporters write it."""
    free = onnx.ModelProto()
    free.CopyFrom(source)
    del free.graph.value_info[:]
    for value in free.graph.input:
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for value in free.graph.output:
        value.type.tensor_type.ClearField("shape")
    return free


# ---- The table ----


def unoptimized(source: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what ONNX Runtime computes without its optimisations."""
    return list(onnxruntime_call(source, is_optimised=False)(feeds))


def _distance(found: object, right: Sequence[np.ndarray]) -> float:
    """Return the largest difference of outputs of floats: that of a few roundings may choose another index."""
    arrays = found if isinstance(found, list | tuple) else [found]
    pairs = [pair for pair in zip(arrays, right, strict=True) if pair[1].dtype.kind == "f"]
    return difference([ours for ours, _ in pairs], [theirs for _, theirs in pairs]) if pairs else 0.0


def row(name: str, form: str, options: argparse.Namespace) -> tuple[list[str], float]:
    """Measure a family in a format; return its cells and our time by that of the best peer."""
    original = float_model(name)
    converted = FORMATS[form](original)
    feeds = sample_inputs(graft.load(converted))
    if form.startswith(("float16", "bfloat16")):
        wide = {key: array.astype(np.float32) if array.dtype.itemsize == 2 else array for key, array in feeds.items()}
        right = unoptimized(original, wide)
    else:
        right = unoptimized(converted, feeds)
    if options.symbolic:
        converted = with_batch(converted)
    source = graft.load(converted)
    program = graft.compile(source, threads=options.threads)
    runs: dict[str, Run] = {"graft": program_run(program, feeds)}
    for one in options.against:
        try:
            run = peer(one, source, feeds, options.threads)
            run()
        except Exception as error:  # a peer says in its own words what it cannot run
            print(f"{one} cannot run {name} in {form}: {error}"[:200], flush=True)
            continue
        runs[one] = run
    rows = {one.name: one for one in measure(runs, options.seconds, minimum=ROUNDS)}
    others = sorted(list(rows.values())[1:], key=lambda one: one.median_ms)
    ours = f"{_distance(runs['graft'](), right):.0e}"
    theirs = f"{_distance(runs[others[0].name](), right):.0e}" if others else "-"
    times = [f"{rows[one].median_ms:.2f}" if one in rows else "-" for one in ("graft", *options.against)]
    ratio = others[0].ratio if others else math.nan
    return [name, form, *times, f"{ratio:.2f}", ours, theirs], ratio


def main() -> None:
    """Print the table, and the geometric mean of the ratios of each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default=list(FORMATS), type=lambda text: text.split(","))
    parser.add_argument("--families", default=CHOSEN, type=lambda text: text.split(","))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--symbolic", action="store_true")
    parser.add_argument(
        "--against", default=[one for one in PEERS if installed(one)], type=lambda text: text.split(",")
    )
    options = parser.parse_args()
    columns = ("family", "format", *(f"{one} ms" for one in ("graft", *options.against)), "of best", "error", "theirs")
    print(f"| {' | '.join(columns)} |\n|---|---|" + "---:|" * (len(columns) - 2))
    for form in options.formats:
        ratios = []
        for name in options.families:
            try:
                cells, ratio = row(name, form, options)
            except GraftError as error:
                print(f"{name} in {form}: {error}"[:300], flush=True)
                continue
            print(f"| {' | '.join(cells)} |", flush=True)
            ratios += [ratio] if ratio == ratio else []
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{form}: {len(ratios)} families, geometric mean {mean:.2f}, worst {max(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
