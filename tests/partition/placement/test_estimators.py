"""What a region costs in seconds, by a model of the machine."""

from __future__ import annotations

import pytest

from graft.core.machine.rows import GENERIC
from graft.core.machine.target import Precision, Target
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Cost
from graft.partition.placement.estimators import Roofline
from graft.partition.placement.partitioner import partition
from graft.partition.policy import Policy
from graft.partition.region import Region, regions
from tests.partition.costly import Costly
from tests.partition.graphs import everything, small

MODEL = Policy(placement="model")


def test_the_model_reads_what_backends_say_their_regions_cost() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    slow, fast = Costly("npu", Cost(10**12, 0)), Costly("npu", [Cost(10**3, 0), Cost(0, 10**3)])
    rest = Costly("rest", Cost(10**9, 0), fallback=True)
    assert partition(model, [slow, rest], policy=MODEL).plan["a"].backend == "rest"
    assert partition(model, [fast, rest], policy=MODEL).plan["a"].backend == "npu"


def test_kernels_one_after_another_cost_their_sum_and_threads_share_all_but_fixed_seconds() -> None:
    region = regions(partition(small("y = Relu(x)"), [everything()]).model)[0]

    def seconds(threads: int, *costs: Cost) -> float:
        backend = Costly("rest", list(costs))
        return Roofline([backend], OPERATORS, threads).region_seconds(region)

    product, copy, fixed = Cost(10**10, 10), Cost(10, 10**9), Cost(0, 0, 0.3)
    assert seconds(1, product, copy) == pytest.approx(seconds(1, product) + seconds(1, copy), rel=1e-4)
    assert seconds(2, product) == pytest.approx(seconds(1, product) / 2, rel=1e-3)
    assert seconds(2, fixed) == pytest.approx(seconds(1, fixed), rel=1e-3)


class Device(Costly):
    """A backend on a device, whose seconds depend on what code is for."""

    device = "gpu"

    def cost_on(self, region: Region, target: Target) -> list[Cost]:
        return [Cost(0, 0, 1e-3 if target.precision == "bf16" else 1.0)]


def test_a_device_is_priced_by_the_target_and_its_copies() -> None:
    model = small("y = Relu(x)", "float[1000,1000] x", "float[1000,1000] y")
    backends = [Device("gpu", Cost(0, 0)), Costly("rest", Cost(10**9, 0), fallback=True)]

    def placed_for(precision: Precision, link: float = 2e10) -> str:
        target = Target(GENERIC, precision=precision)
        estimator = Roofline(backends, OPERATORS, target=target, link_bytes_per_second=link)
        return partition(model, backends, policy=MODEL, estimator=estimator).plan["y"].backend

    assert placed_for("bf16") == "gpu"
    assert placed_for("float32") == "rest"
    assert placed_for("bf16", link=5e8) == "rest"


def test_copies_over_a_link_cost_their_bytes_and_a_beginning() -> None:
    model = Roofline([], OPERATORS, link_bytes_per_second=1e9, link_seconds=1e-3)
    assert model.transfer_seconds(10**6) == pytest.approx(2e-3)
