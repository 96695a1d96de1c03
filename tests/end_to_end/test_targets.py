"""Programs compiled for less than this machine run here and give the same answers."""

import platform

import numpy as np
import pytest

import graft
from benchmarks.zoo import path_of
from graft.core.machine.rows import ROWS
from graft.core.machine.target import host_target
from graft.core.shapes.sample_inputs import sample_inputs

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are those of x86-64")


@pytest.mark.parametrize("cpu", [name for name, row in ROWS.items() if row.arch == "x86_64"])
def test_every_level_gives_the_same_answer(cpu):
    if not ROWS[cpu].features <= host_target().features:
        pytest.skip(f"this processor is no {cpu}")
    model = graft.load(path_of("digits"))
    feeds = sample_inputs(model)
    wanted = graft.compile(model, ["reference"], threads=1).run(feeds)["logits"]
    actual = graft.compile(model, ["llvm"], threads=1, cpu=cpu, strict=True).run(feeds)["logits"]
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
