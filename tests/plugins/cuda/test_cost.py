"""What the backends on a device say that kernels cost: seconds by the row of the device."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from graft.compiler.driver import prepare
from graft.core.machine.target import Precision, Target
from graft.core.operators.all import OPERATORS
from graft.partition.placement.estimators import Roofline
from graft.partition.placement.partitioner import partition
from graft.partition.policy import Policy
from graft.partition.region import Region, regions
from graft.plugins.backend import Backend
from graft.plugins.cuda.backend import CudaBackend, CudaEmulator
from graft.plugins.cuda.cost import LAUNCH_SECONDS
from graft.plugins.cuda.cublas.backend import CALL_SECONDS, CublasBackend
from graft.plugins.cuda.machines import SM_80, SM_90, SM_90A
from graft.plugins.llvm.backend import LlvmBackend

CUDA, EMULATOR = CudaBackend(), CudaEmulator()


class Library(CublasBackend):
    """The library as if it were installed."""

    def available(self) -> str | None:
        return None


def model_of(body: str, inputs: str, output: str) -> ir.Model:
    text = f'<ir_version: 10, opset_import: ["" : 22]> g ({inputs}) => ({output} y) {{ {body} }}'
    return prepare(ir.from_onnx_text(text))


def product(m: int, k: int, n: int, dtype: str = "float") -> ir.Model:
    return model_of("y = MatMul (a, b)", f"{dtype}[{m},{k}] a, {dtype}[{k},{n}] b", f"{dtype}[{m},{n}]")


def region_of(model: ir.Model, backend: Backend) -> Region:
    (found,) = regions(partition(model, [backend]).model)
    return found


def seconds(backend: Backend, model: ir.Model, machine=SM_80, precision: Precision = "float32") -> float:
    costs = backend.cost_on(region_of(model, backend), Target(machine, precision=precision))
    assert all((one.flops, one.bytes) == (0, 0) for one in costs)
    return sum(one.seconds for one in costs)


@pytest.mark.parametrize(
    ("machine", "dtype", "precision", "peak"),
    [
        (SM_80, "float", "float32", 19.5e12), (SM_80, "float", "tf32", 156e12), (SM_80, "float", "bf16", 312e12),
        (SM_80, "float16", "float32", 312e12), (SM_80, "double", "float32", 9.7e12),
        (SM_90, "float", "float32", 60e12), (SM_90, "float16", "float32", 481e12),
        (SM_90A, "float16", "float32", 962e12),
    ],
)  # fmt: skip
def test_a_large_product_takes_its_share_of_the_data_sheets_rate(
    machine, dtype: str, precision: Precision, peak: float
) -> None:
    reached = 2 * 4096**3 / (seconds(CUDA, product(4096, 4096, 4096, dtype), machine, precision) - LAUNCH_SECONDS)
    assert reached / peak == pytest.approx(0.8 if peak < 1e14 else 0.6, rel=0.01)


def test_the_library_uses_the_devices_best_instruction() -> None:
    large = product(4096, 4096, 4096, "bfloat16")
    assert seconds(Library(), large, SM_90) < seconds(CUDA, large, SM_90) / 2
    assert seconds(Library(), large, SM_80) == pytest.approx(seconds(CUDA, large, SM_80) * 0.6 / 0.85, rel=0.02)


def test_what_only_moves_bytes_takes_the_memorys_time() -> None:
    moved = model_of("y = Relu (x)", "float[4096,4096] x", "float[4096,4096]")
    bandwidth = 2 * 4 * 4096**2 / (seconds(CUDA, moved, SM_80) - LAUNCH_SECONDS)
    assert bandwidth == pytest.approx(0.85 * 1555e9, rel=0.01)
    assert seconds(CUDA, moved, SM_90) < seconds(CUDA, moved, SM_80) / 2


def test_small_kernels_take_a_launch_each_and_the_library_a_call() -> None:
    tiny = product(8, 8, 8)
    assert seconds(CUDA, tiny) == pytest.approx(LAUNCH_SECONDS, rel=0.05)
    assert seconds(Library(), tiny) == pytest.approx(LAUNCH_SECONDS + CALL_SECONDS, rel=0.05)


def test_few_sums_do_not_keep_all_multiprocessors_busy() -> None:
    narrow, wide = product(32, 65536, 32), product(1024, 64, 1024)
    assert seconds(CUDA, narrow) > 10 * seconds(CUDA, wide)


def test_without_a_target_it_is_the_row_that_code_is_for_then() -> None:
    region = region_of(product(64, 64, 64), CUDA)
    assert CUDA.cost(region) == CUDA.cost_on(region, Target(SM_80))
    both = replace(Target(SM_90), devices=(SM_80,))
    assert CUDA.cost_on(region, both) == CUDA.cost_on(region, Target(SM_80))


@pytest.mark.parametrize(
    ("size", "precision", "chosen"), [(16, "float32", "llvm"), (4096, "float32", "cublas"), (4096, "bf16", "cublas")]
)
def test_products_go_where_the_device_and_its_copies_cost_less(size: int, precision: Precision, chosen: str) -> None:
    backends = [Library(), CUDA, LlvmBackend()]
    prices = Roofline(backends, OPERATORS, target=Target(SM_90, precision=precision))
    model = product(size, size, size)
    plan = partition(model, backends, policy=Policy(placement="model"), estimator=prices).plan
    (row,) = plan.placements
    assert row.backend == chosen
    other = row.reasons["cuda" if chosen == "cublas" else "cublas"]
    assert chosen == "cublas" or (other.code == "cost" and " ms against " in other.text)


def test_what_follows_a_product_stays_with_it_on_the_device() -> None:
    backends = [Library(), CUDA, LlvmBackend()]
    model = model_of(
        "p = MatMul (a, b) s = Softmax (p) y = MatMul (s, b)", "float[2048,2048] a, float[2048,2048] b",
        "float[2048,2048]",
    )  # fmt: skip
    prices = Roofline(backends, OPERATORS, target=Target(SM_90))
    plan = partition(model, backends, policy=Policy(placement="model"), estimator=prices).plan
    assert {row.backend for row in plan.placements} <= {"cublas", "cuda"}
    assert [row.backend for row in plan.placements if row.op_type == "Softmax"] == ["cuda"]


def test_the_emulator_is_far_slower_than_a_processor() -> None:
    backends = [EMULATOR, LlvmBackend()]
    prices = Roofline(backends, OPERATORS, target=Target(SM_80))
    plan = partition(product(512, 512, 512), backends, policy=Policy(placement="model"), estimator=prices).plan
    assert [row.backend for row in plan.placements] == ["llvm"]
