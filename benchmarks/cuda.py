"""Generated kernels beside NVIDIA's libraries, PyTorch and ONNX Runtime, where there is a device.

    python -m benchmarks.cuda [part of a row's name ...]

Prints a row for each case: microseconds of both, the share of the peer's speed, and the shares that are to be reached.
Results that differ from the peer's are an error. On a device of compute capability 9.0 products are measured with
instructions of warpgroups, too. Without a device, or without PyTorch, it says what is missing. Inputs and results stay
on the device.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnx

import graft
from graft.errors import GraftError
from graft.testkit.models.net import Net

RUNS = 20
Y = ("y",)
"""The output of every model."""
LAUNCHES = 10
TYPES = {
    "float32": onnx.TensorProto.FLOAT, "float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16,
    "int8": onnx.TensorProto.INT8, "int64": onnx.TensorProto.INT64,
}  # fmt: skip
Inputs = Mapping[str, tuple[str, Sequence[int]]]
"""Type and shape of each input by its name."""


def missing() -> str | None:
    """Return what is missing to measure anything here."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no CUDA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the CUDA driver sees no device"
    if find_spec("torch") is None:
        return "PyTorch, whose kernels are the peers, is not installed"
    import torch

    return None if torch.cuda.is_available() else f"PyTorch {torch.__version__} has no CUDA, or sees no device"


@dataclass(frozen=True)
class Sizes:
    """How large the cases are; those of the figures unless others are given."""

    float32: int = 4096
    bfloat16: tuple[int, ...] = (4096, 8192)
    int8: int = 4096
    heads: int = 16
    length: int = 4096
    features: tuple[int, ...] = (64, 128)
    rows: tuple[int, int] = (8192, 4096)
    batches: tuple[int, ...] = (1, 32)


@dataclass(frozen=True)
class Case:
    """A row: a model, its inputs, the peer's function of them, and the shares of its speed to be reached, to aim at."""

    name: str
    model: Callable[[], onnx.ModelProto]
    inputs: Inputs
    peer: Callable[[Any], Callable[..., Any]]
    """From PyTorch to a function of the inputs' tensors."""
    bar: float
    aim: float
    precision: str = "float32"
    backends: tuple[str, ...] = field(default=("cuda",))
    tolerance: float | None = None
    """How far results may be from the peer's, against their largest number; None where the peer computes another."""
    has_groups: bool = False
    """Whether warpgroups have instructions for it."""


def model(inputs: Inputs, build: Callable[..., object]) -> onnx.ModelProto:
    """Return a model of what a function of a net and its inputs builds; its output is ``y``."""
    net = Net(opset=22)
    build(net, *(net.input(name, *shape, dtype=TYPES[dtype]) for name, (dtype, shape) in inputs.items()))
    return net.model("y")


# ---- Rows -----------------------------------------------------------------------------------------------------------


def products(sizes: Sizes) -> Iterator[Case]:
    """Yield square products; those of floats by the backend `cublas` as well."""
    wide = [(size, "bfloat16", 0.6, 0.9, 2e-2, True) for size in sizes.bfloat16]
    for size, dtype, bar, aim, tolerance, has_groups in ((sizes.float32, "float32", 0.8, 0.95, 1e-4, False), *wide):
        square: Inputs = {name: (dtype, [size, size]) for name in ("a", "b")}
        made = partial(model, square, lambda net, a, b: net.MatMul(a, b, outputs=Y))
        case = Case(f"product {dtype} {size}", made, square, lambda torch: torch.matmul, bar, aim, tolerance=tolerance)
        yield replace(case, has_groups=has_groups)
        yield replace(case, name=f"cublas {dtype} {size}", bar=0.95, aim=1.0, backends=("cublas",))
    square = {name: ("int8", [sizes.int8, sizes.int8]) for name in ("a", "b")}
    made = partial(model, square, lambda net, a, b: net.MatMulInteger(a, b, outputs=Y))
    case = Case(f"product int8 {sizes.int8}", made, square, lambda torch: torch._int_mm, 0.5, 0.8, tolerance=0.0)
    yield replace(case, has_groups=True)


def attention(sizes: Sizes) -> Iterator[Case]:
    """Yield attention beside FlashAttention-2 as PyTorch has it."""
    for features in sizes.features:
        heads: dict[str, tuple[str, list[int]]] = {
            name: ("bfloat16", [1, sizes.heads, sizes.length, features]) for name in ("q", "k", "v")
        }
        made = partial(model, heads, partial(_attention, features**-0.5))
        yield Case(f"attention bfloat16 {features}", made, heads, _flash, 0.5, 0.8, tolerance=2e-2)


def _attention(scale: float, net: Net, q: str, k: str, v: str) -> None:
    scores = net.Mul(
        net.MatMul(q, net.Transpose(k, perm=[0, 1, 3, 2])), net.Cast(net.constant(scale), to=TYPES["bfloat16"])
    )
    net.MatMul(net.Softmax(scores), v, outputs=Y)


def _flash(torch: Any) -> Callable[..., Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return run


def memory_bound(sizes: Sizes) -> Iterator[Case]:
    """Yield what moves as much as a copy: beside a copy of its input."""
    rows: Inputs = {"x": ("float32", list(sizes.rows))}
    cases = {
        "softmax": lambda net, x: net.Softmax(x, outputs=Y),
        "layernorm": lambda net, x: net.LayerNormalization(x, *(_ones(net, x) for _ in range(2)), outputs=Y),
        "elementwise chain": lambda net, x: net.Mul(t := net.Add(x, _ones(net, x)), net.Sigmoid(t), outputs=Y),
        "transpose": lambda net, x: net.Transpose(x, outputs=Y),
    }
    for name, build in cases.items():
        made = partial(model, rows, build)
        yield Case(f"{name} beside a copy", made, rows, lambda torch: torch.clone, 0.85, 0.95)


def networks(sizes: Sizes) -> Iterator[Case]:
    """Yield BERT-base and ResNet-50, as PyTorch exports them, beside torch.compile and ONNX Runtime."""
    for batch in sizes.batches:
        tokens: Inputs = {name: ("int64", [batch, 128]) for name in ("input_ids", "attention_mask")}
        image: Inputs = {"pixel_values": ("float32", [batch, 3, 224, 224])}
        for precision in ("float32", "bf16"):
            for title, inputs, build in (("BERT-base", tokens, _bert), ("ResNet-50", image, _resnet)):
                made = partial(_exported, build, inputs)
                whole = f"{title} batch {batch} {precision}"
                compiled = partial(_compiled_by_torch, build=build, precision=precision)
                yield Case(f"{whole} / torch.compile", made, inputs, compiled, 1.0, 1.25, precision)
                runtime = partial(_onnx_runtime, made=made, inputs=inputs)
                yield Case(f"{whole} / ONNX Runtime", made, inputs, runtime, 1.0, 1.25, precision)


def _exported(build: Callable[[], Any], inputs: Inputs) -> onnx.ModelProto:
    """Return a network with weights from a seed, as PyTorch exports it for these shapes."""
    import torch

    torch.manual_seed(0)
    given = tuple(torch.zeros(list(shape), dtype=getattr(torch, dtype)) for dtype, shape in inputs.values())
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/network.onnx"
        torch.onnx.export(build().eval(), given, path, input_names=list(inputs), dynamo=True, external_data=False)
        return onnx.load(path)


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig())


def _resnet() -> Any:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000))


def _compiled_by_torch(torch: Any, *, build: Callable[[], Any], precision: str) -> Callable[..., Any]:
    network = build().eval().cuda().to(torch.bfloat16 if precision == "bf16" else torch.float32)
    fast = torch.compile(network, mode="max-autotune")

    def run(*tensors: Any) -> Any:
        with torch.inference_mode():
            return fast(*(one.to(torch.bfloat16) if precision == "bf16" and one.is_floating_point() else one
                          for one in tensors))  # fmt: skip

    return run


def _onnx_runtime(torch: Any, *, made: Callable[[], onnx.ModelProto], inputs: Inputs) -> Callable[..., Any]:
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise GraftError("this ONNX Runtime has no CUDA; pip install onnxruntime-gpu")
    session = onnxruntime.InferenceSession(made().SerializeToString(), providers=["CUDAExecutionProvider"])
    binding = session.io_binding()

    def run(*tensors: Any) -> None:
        for name, tensor in zip(inputs, tensors, strict=True):
            dtype = str(tensor.dtype).removeprefix("torch.")
            binding.bind_input(name, "cuda", 0, np.dtype(dtype), tuple(tensor.shape), tensor.data_ptr())
        for output in session.get_outputs():
            binding.bind_output(output.name, "cuda")
        session.run_with_iobinding(binding)

    return run


def cases(sizes: Sizes = Sizes()) -> Iterator[Case]:
    """Yield every row."""
    for rows in (products, attention, memory_bound, networks):
        yield from rows(sizes)


def _ones(net: Net, x: str) -> str:
    return net.constant(np.ones(net.shape(x)[-1]))


# ---- Measuring ------------------------------------------------------------------------------------------------------


def seconds(run: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    """Return the median of some runs, after three that are not counted: they compile, and record graphs."""
    for _ in range(3):
        run()
    synchronize()
    found = []
    for _ in range(RUNS):
        started = perf_counter()
        run()
        synchronize()
        found.append(perf_counter() - started)
    return median(found)


def tensors_of(torch: Any, inputs: Inputs) -> dict[str, Any]:
    """Return random tensors on the device."""
    made = {}
    for name, (dtype, shape) in inputs.items():
        if dtype.startswith("int"):
            high = 2 if name == "attention_mask" else 100
            made[name] = torch.randint(-9 if dtype == "int8" else 0, high, list(shape), device="cuda").to(
                getattr(torch, dtype)
            )
        else:
            made[name] = torch.randn(list(shape), dtype=getattr(torch, dtype), device="cuda")
    return made


def measure(case: Case, torch: Any, target: str) -> str:
    """Return the text of a row; raise GraftError for results that differ from the peer's."""
    tensors = tensors_of(torch, case.inputs)
    program = graft.compile(
        case.model(), list(case.backends), target=target, precision=case.precision, strict=len(case.backends) == 1
    )
    peer = case.peer(torch)
    if case.tolerance is not None:
        _compare(program.run(tensors)["y"], peer(*tensors.values()), case.tolerance, torch)
    own = seconds(lambda: program.run(tensors), torch.cuda.synchronize)
    theirs = seconds(lambda: peer(*tensors.values()), torch.cuda.synchronize)
    shown = f"(bar {case.bar:.0%}, aim {case.aim:.0%})"
    return f"{own * 1e6:10.1f} us {theirs * 1e6:10.1f} us {theirs / own:6.0%} {shown}"


def _compare(ours: Any, theirs: Any, tolerance: float, torch: Any) -> None:
    wanted = theirs.to(torch.float32)
    error = float(abs(torch.from_dlpack(ours).to(torch.float32) - wanted).max() / abs(wanted).max())
    if not error <= tolerance:
        raise GraftError(f"its results are {error:.1e} from the peer's, and {tolerance:.0e} is tolerated")


def launches(size: int = 256) -> onnx.ModelProto:
    """Return a model of `LAUNCHES` short kernels that nothing makes one."""

    def build(net: Net, x: str) -> None:
        axis = net.constant(0, np.int64)
        for number in range(LAUNCHES):
            x = net.CumSum(x, axis, outputs=Y if number == LAUNCHES - 1 else 1)

    return model({"x": ("float32", [size])}, build)


def overhead(torch: Any, target: str) -> str:
    """Return how much longer a call of a program takes than the replay of a CUDA graph of as many launches."""
    x = torch.randn(256, device="cuda")
    program = graft.compile(launches(256), ["cuda"], target=target, strict=True)
    graph = torch.cuda.CUDAGraph()
    torch.cumsum(x, 0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        value = x
        for _ in range(LAUNCHES):
            value = torch.cumsum(value, 0)
    own = seconds(lambda: program.run({"x": x}), torch.cuda.synchronize)
    theirs = seconds(graph.replay, torch.cuda.synchronize)
    return f"{own * 1e6:10.1f} us {theirs * 1e6:10.1f} us {(own - theirs) * 1e6:6.1f} us more (bar 10, aim 3)"


def rows_of(torch: Any, capability: tuple[int, int], sizes: Sizes = Sizes()) -> dict[str, Callable[[], str]]:
    """Return what measures each row on a device of a compute capability, by its name."""
    target = "sm_90" if capability >= (9, 0) else "sm_80"
    rows: dict[str, Callable[[], str]] = {}
    for case in cases(sizes):
        rows[case.name] = partial(measure, case, torch, target)
        if case.has_groups and capability == (9, 0):
            rows[f"{case.name} by warpgroups"] = partial(measure, case, torch, "sm_90a")
    return {**rows, "launch overhead": partial(overhead, torch, target)}


def main() -> None:
    """Print the table."""
    if (reason := missing()) is not None:
        print(f"nothing was measured: {reason}")
        return
    import torch

    major, minor = torch.cuda.get_device_capability()
    print(f"{torch.cuda.get_device_name()} (sm_{major}{minor}), PyTorch {torch.__version__}")
    for name, run in rows_of(torch, (major, minor)).items():
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        try:
            print(f"{name:42} {run()}", flush=True)
        except (GraftError, ImportError, RuntimeError) as error:
            print(f"{name:42} {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
