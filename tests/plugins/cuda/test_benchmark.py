"""The rows of the benchmark: small models in the emulator beside the formulas of peers, and no device."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import cuda
from benchmarks.cuda import Case, Sizes
from graft.errors import GraftError
from graft.runtime.dtypes import numpy_dtype
from tests.plugins.cuda.graphs import ran

SMALL = Sizes(float32=96, bfloat16=(64, 96), int8=96, heads=2, length=96, features=(32, 64), rows=(40, 96), batches=())
CASES = {case.name: case for case in cuda.cases(SMALL) if case.backends == ("cuda",)}
ROW = re.compile(r" +[0-9.]+ us +[0-9.]+ us +\d+% \(bar \d+%, aim \d+%\)")


class Tensor(np.ndarray):
    """An array with the methods of PyTorch's tensors that the benchmark calls."""

    def to(self, dtype: np.dtype[Any]) -> Tensor:
        return self.astype(dtype)


def tensor(array: np.ndarray) -> Tensor:
    return array.view(Tensor)


class Cuda:
    """A device that has always finished."""

    synchronize = staticmethod(lambda: None)


class Torch:
    """PyTorch as far as the benchmark goes, in main memory."""

    cuda = Cuda
    float32, bfloat16, int8 = (numpy_dtype(name) for name in ("float32", "bfloat16", "int8"))
    clone = staticmethod(np.copy)
    from_dlpack = staticmethod(tensor)

    def __init__(self) -> None:
        self._random = np.random.default_rng(3)

    def randn(self, shape: list[int], dtype: np.dtype[Any], device: str) -> Tensor:
        return tensor(self._random.standard_normal(shape).astype(dtype))

    def randint(self, low: int, high: int, shape: list[int], device: str) -> Tensor:
        return tensor(self._random.integers(low, high, shape))

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return tensor(np.asarray(a, np.float32) @ np.asarray(b, np.float32))

    def _int_mm(self, a: Tensor, b: Tensor) -> Tensor:
        return tensor(np.asarray(a, np.int32) @ np.asarray(b, np.int32))


def attended(torch: Torch) -> Callable[..., Tensor]:
    """The formula of attention."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        left, right, values = (np.asarray(one, np.float32) for one in (q, k, v))
        scores = left @ right.swapaxes(-1, -2) * left.shape[-1] ** -0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return tensor(weights / weights.sum(-1, keepdims=True) @ values)

    return run


def emulated(name: str) -> Case:
    case = replace(CASES[name], backends=("cuda_emulator",))
    return replace(case, peer=attended) if name.startswith("attention") else case


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_measured_beside_its_peer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "RUNS", 1)
    assert ROW.fullmatch(cuda.measure(emulated(name), Torch(), "sm_90"))


def test_attention_of_the_figures_is_one_kernel_in_stages() -> None:
    case = next(case for case in cuda.attention(replace(SMALL, length=192)))
    torch = Torch()
    made = cuda.tensors_of(torch, case.inputs)
    (schedule,) = ran(case.model(), {name: np.asarray(one) for name, one in made.items()}).schedules
    assert (schedule["strategy"], schedule["stages"]) == ("cuda.attention", 2)
    assert schedule["instruction"] == "mma_bfloat16"


def test_results_that_differ_from_the_peers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(emulated("product float32 96"), peer=lambda torch: lambda a, b: torch.matmul(a, b) * 2)
    with pytest.raises(GraftError, match=r"^its results are 5\.0e-01 from the peer's, and 1e-04 is tolerated$"):
        cuda.measure(case, Torch(), "sm_90")


def test_a_device_of_9_0_is_measured_with_warpgroups_too() -> None:
    def named(*capability: int) -> list[str]:
        return [name for name in cuda.rows_of(Torch(), capability, SMALL) if "warpgroups" in name]  # type: ignore[arg-type]

    assert named(9, 0) == [f"product {one} by warpgroups" for one in ("bfloat16 64", "bfloat16 96", "int8 96")]
    assert named(8, 0) == named(10, 0) == []


def test_the_overhead_is_that_of_ten_launches() -> None:
    x = np.ones(256, np.float32)
    found = ran(cuda.launches(), {"x": x})
    assert len(found.schedules) == cuda.LAUNCHES
    assert found.error < 1e-6


def test_without_a_driver_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none)
    cuda.main()
    assert capsys.readouterr().out == "nothing was measured: there is no CUDA driver (libcuda.so.1)\n"
