"""Kernels that no suite has, tuned for some seconds each: ``python -m benchmarks.schedules.odd_kernels [--seconds N]``.

Odd batches and channels, windows of odd shapes, dilations, chains of products, reductions over middle axes, epilogues
with broadcasts. Tuned, untuned and ONNX Runtime run in turns; what tuning finds is a fault of the model of cycles.
*limit* is the least time by the machine's multiply-adds and bytes a second (`graft.measure.roofline`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial

import onnxruntime

import graft
from benchmarks.peers import best_turns
from benchmarks.schedules.cases import model
from graft.measure.roofline import measure_roofline, traffic_of

CASES = {
    "batch 3, 1x1, 13 to 26": "x 3,13,30,30; w 26,13,1,1 : t = Conv(x, w) y = Relu(t)",
    "batch 3, 5x1": "x 3,13,30,30; w 26,13,5,1 : t = Conv<pads=[2,0,2,0]>(x, w) y = Relu(t)",
    "batch 7, 1x7": "x 7,24,17,33; w 24,24,1,7 : t = Conv<pads=[0,3,0,3]>(x, w) y = Relu(t)",
    "7x1, 48 channels": "x 1,48,35,35; w 48,48,7,1 : t = Conv<pads=[3,0,3,0]>(x, w) y = Relu(t)",
    "7x7, 13 channels": "x 1,13,40,40; w 32,13,7,7 : t = Conv<pads=[3,3,3,3]>(x, w) y = Relu(t)",
    "7x7 in strides of 4": "x 1,3,128,128; w 48,3,7,7 : t = Conv<pads=[3,3,3,3],strides=[4,4]>(x, w) y = Relu(t)",
    "3x3, 13 to 13": "x 1,13,64,64; w 13,13,3,3 : t = Conv<pads=[1,1,1,1]>(x, w) y = Relu(t)",
    "3x3, dilation 3": "x 1,40,28,28; w 40,40,3,3 : t = Conv<pads=[3,3,3,3],dilations=[3,3]>(x, w) y = Relu(t)",
    "3x3, dilations 1 and 4": "x 1,32,24,48; w 32,32,3,3 : t = Conv<pads=[1,4,1,4],dilations=[1,4]>(x, w) y = Relu(t)",
    "5x5, stride 2, 20 to 36": "x 1,20,45,45; w 36,20,5,5 : t = Conv<pads=[2,2,2,2],strides=[2,2]>(x, w) y = Relu(t)",
    "2x2, no border": "x 1,48,33,33; w 64,48,2,2 : t = Conv(x, w) y = Relu(t)",
    "4x4 in strides of 4": "x 1,24,64,64; w 72,24,4,4 : t = Conv<strides=[4,4]>(x, w) y = Relu(t)",
    "3x3, 3 groups": "x 1,39,30,30; w 39,13,3,3 : t = Conv<pads=[1,1,1,1],group=3>(x, w) y = Relu(t)",
    "3x3, groups of 4": "x 1,64,28,28; w 64,4,3,3 : t = Conv<pads=[1,1,1,1],group=16>(x, w) y = Relu(t)",
    "depthwise 7x7, batch 3": "x 3,40,28,28; w 40,1,7,7 : t = Conv<pads=[3,3,3,3],group=40>(x, w) y = Relu(t)",
    "depthwise 3x5, dilation 2": "x 1,45,50,50; w 45,1,3,5 : y = Conv<pads=[2,4,2,4],dilations=[2,2],group=45>(x, w)",
    "1-D, 31 wide": "x 2,24,500; w 24,24,31 : t = Conv<pads=[15,15]>(x, w) y = Relu(t)",
    "1-D, stride 5": "x 1,1,8000; w 64,1,10 : t = Conv<strides=[5]>(x, w) y = Relu(t)",
    "3-D, 1x3x3": "x 1,16,7,28,28; w 24,16,1,3,3 : t = Conv<pads=[0,1,1,0,1,1]>(x, w) y = Relu(t)",
    "3-D, 3x1x1": "x 1,24,9,20,20; w 24,24,3,1,1 : t = Conv<pads=[1,0,0,1,0,0]>(x, w) y = Relu(t)",
    "transposed, 4x4": "x 1,48,20,20; w 48,24,4,4 : t = ConvTranspose<strides=[2,2],pads=[1,1,1,1]>(x, w) y = Relu(t)",
    "product 7x13x29": "x 7,13; w 13,29 : t = MatMul(x, w) y = Relu(t)",
    "product 3x700x900": "x 3,700; w 700,900 : t = MatMul(x, w) y = Relu(t)",
    "product 77x91x333": "x 77,91; w 91,333 : t = MatMul(x, w) y = Relu(t)",
    "product 1000x17x5": "x 1000,17; w 17,5 : t = MatMul(x, w) y = Relu(t)",
    "product 33x2000x11": "x 33,2000; w 2000,11 : t = MatMul(x, w) y = Relu(t)",
    "products 7x 50x50x50": "x 7,50,50; w 7,50,50 : t = MatMul(x, w) y = Relu(t)",
    "chain of three products": (
        "x 50,120; a 120,77; c 77,200; d 200,30 : t = MatMul(x, a) u = MatMul(t, c) y = MatMul(u, d)"
    ),
    "chain with broadcasts": (
        "x 3,60,90; a 90,90; c 60,1; d 90,45; e 1,45 : t = MatMul(x, a) u = Mul(t, c) v = MatMul(u, d) y = Add(v, e)"
    ),
    "product times its columns": "x 64,100; w 100,130; c 130; e 64,1 : t = MatMul(x, w) u = Mul(t, c) y = Div(u, e)",
    "product, Gelu, rows": "x 49,100; w 100,190; e 49,1 : t = MatMul(x, w) u = Gelu(t) y = Add(u, e)",
    "einsum over two axes": 'x 9,14,30; w 14,30,50 : y = Einsum<equation="abc,bcd->ad">(x, w)',
    "einsum, transposed": 'x 5,33,21; w 5,21,40 : y = Einsum<equation="bij,bjk->bki">(x, w)',
    "middle axis, sum": "x 13,77,90 : t = Abs(x) k = Constant<value_ints=[1]>() y = ReduceSum<keepdims=0>(t, k)",
    "middle axis, maximum": "x 7,130,33 : k = Constant<value_ints=[1]>() t = ReduceMax(x, k) y = Sub(x, t)",
    "first and last axes": "x 24,50,60 : k = Constant<value_ints=[0,2]>() y = ReduceMean(x, k)",
    "Softmax of a middle axis": "x 6,50,70 : y = Softmax<axis=1>(x)",
    "rows of 13": "x 900,13; a 13; c 13 : y = LayerNormalization(x, a, c)",
    "transposed, then scaled": "x 30,50,70; a 70,1,1 : t = Transpose<perm=[2,0,1]>(x) y = Mul(t, a)",
    "broadcasts of three": "x 40,1,70; a 1,50,1; c 40,50,1 : t = Add(x, a) u = Tanh(t) y = Mul(u, c)",
}
"""See `benchmarks.schedules.cases.model`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=600 / len(CASES), help="for the tuning of one kernel")
    options.add_argument("--only", default="", help="a part of the names of the kernels to tune")
    chosen = options.parse_args(arguments)
    own = onnxruntime.SessionOptions()
    own.intra_op_num_threads = 1
    head = "| kernel | strategies | untuned, us | tuned / untuned | untuned / ONNX Runtime | limit / untuned |"
    print(f"{head}\n|---|---|---:|---:|---:|---:|")
    roofline = measure_roofline()
    ratios = list[tuple[float, float]]()
    for name, text in CASES.items():
        if chosen.only not in name:
            continue
        source, given = model(text)
        peer = onnxruntime.InferenceSession(source.SerializeToString(), own, providers=["CPUExecutionProvider"])
        untuned = graft.compile(source, ["llvm"], threads=1, cache=False, tuned=False)
        tuned = untuned
        if chosen.seconds > 0:
            tuned = graft.compile(source, ["llvm"], threads=1, cache=False, tune=chosen.seconds)
        feeds = {source.graph.input[0].name: given}
        times = best_turns([partial(tuned, given), partial(untuned, given), partial(peer.run, None, feeds)])
        ratios.append((times[0] / times[1], times[1] / times[2]))
        calls = (call.schedule for procedure in untuned.description.procedures for call in procedure.calls)
        used = ", ".join(str(one["strategy"]) for one in calls if one)
        (procedure,) = untuned.description.procedures
        limit = sum(map(roofline.seconds, traffic_of(untuned.description, procedure)))
        shares = " | ".join(f"{one:.2f}" for one in (*ratios[-1], limit / times[1]))
        print(f"| {name} | {used} | {1e6 * times[1]:.1f} | {shares} |", flush=True)
    if ratios:
        means = (math.prod(column) ** (1 / len(ratios)) for column in zip(*ratios, strict=True))
        print("\ngeometric means {:.3f} and {:.3f}".format(*means))


if __name__ == "__main__":
    main()
