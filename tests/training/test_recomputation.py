"""Recomputation: the same bits from less memory, a budget that is kept, and the least where it cannot be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graft
from graft.core.graph.save import save_model
from graft.errors import ArgumentError, ModelError
from graft.report.arena import courses_picture
from graft.report.gathering import report_on_program
from graft.report.html import html
from graft.training import SGD, Trainer, notes_of
from graft.training.kernel_memory import COURSES, courses_of, kernel_memory, state_courses

LAYERS = 9


def network(layers: int = LAYERS) -> onnx.ModelProto:
    body = " ".join(f"a{i} = MatMul (h{i}, w{i}) t{i} = Tanh (a{i}) h{i + 1} = Sigmoid (t{i})" for i in range(layers))
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> net (float[64,32] h0) => (float loss) {{ {body} '
        f"s = Mul (h{layers}, h{layers}) loss = ReduceSum <keepdims = 0> (s) }}"
    )
    rng = np.random.default_rng(0)
    for i in range(layers):
        array = rng.normal(0, 0.3, (32, 32)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, f"w{i}"))
    return model


FEEDS = {"h0": np.random.default_rng(1).normal(size=(64, 32)).astype(np.float32)}


def run(recompute: str | int) -> tuple[dict[str, np.ndarray], int]:
    """Return gradients, and the bytes of the arena."""
    program = graft.compile(graft.grad(network(), recompute=recompute), ["llvm"], threads=1, cache=False)
    return {name: np.asarray(one) for name, one in program.run(FEEDS).items()}, program.arena_bytes


def test_every_way_gives_the_same_bits_and_takes_less() -> None:
    whole, most = run("none")
    for way, share in (("sqrt", 0.5), ("min-cut", 0.62), (90000, 0.62)):
        found, taken = run(way)
        assert taken <= share * most, way
        assert all(np.array_equal(found[name], one) for name, one in whole.items()), way
    assert taken <= 90000


def test_memory_of_kernels_is_that_of_the_program() -> None:
    model = graft.grad(network(), recompute="sqrt")
    assert kernel_memory(model) == graft.compile(model, ["llvm"], threads=1, cache=False).arena_bound


def test_min_cut_computes_no_product_again() -> None:
    plain, cut = (graft.grad(network(), recompute=way) for way in ("none", "min-cut"))
    counts = [sum(node.op_type == "MatMul" for node in one.graph) for one in (plain, cut)]
    assert counts[0] == counts[1]
    assert len(list(cut.graph)) == len(list(plain.graph)) + LAYERS


def test_what_it_comes_to_is_said() -> None:
    (note,) = notes_of(graft.grad(network(), recompute="min-cut"))
    assert note.startswith("recompute: 90112 bytes between kernels, 155648 without; 9 nodes again, ")
    assert notes_of(graft.grad(network())) == ()


def test_a_budget_that_is_met_computes_nothing_again() -> None:
    model = graft.grad(network(), recompute=1 << 20)
    assert [node.op_type for node in model.graph] == [node.op_type for node in graft.grad(network()).graph]


def test_a_budget_that_cannot_be_met_says_the_least() -> None:
    with pytest.raises(ModelError) as caught:
        graft.grad(network(), recompute=1000)
    assert caught.value.message == (
        "a budget of 1000 bytes cannot be met: values between kernels take 57344 bytes at least, and 155648 where "
        "nothing is computed again"
    )
    assert caught.value.facts["least"] == 57344


def test_another_way_is_refused() -> None:
    for way in ("some", 0, True):
        with pytest.raises(ArgumentError, match="give one of 'none', 'sqrt', 'min-cut', or a number of bytes"):
            graft.grad(network(), recompute=way)


def test_a_trainer_takes_the_same_steps_in_less_memory() -> None:
    plain, small = (
        Trainer(network(), "loss", SGD(0.01, momentum=0.9), recompute=way, backends=["llvm"], threads=1)
        for way in ("none", "sqrt")
    )
    assert [plain.step(FEEDS) for _ in range(3)] == [small.step(FEEDS) for _ in range(3)]
    assert all(np.array_equal(small.arrays[name], one) for name, one in plain.arrays.items())
    assert small.program.arena_bytes < 0.6 * plain.program.arena_bytes


def test_weights_are_updated_as_soon_as_their_gradients_are_there() -> None:
    found = Trainer(network(), "loss", SGD(0.01, momentum=0.9), backends=["llvm"], threads=1)
    order = [name for node in found.step_model.graph for name in (one.name for one in node.outputs)]
    places = [order.index(f"w{layer}_next") for layer in range(LAYERS)]
    assert places == sorted(places, reverse=True)
    assert all(one - other > 3 for one, other in pairwise(places))  # the next layer's backward pass is between


def test_a_report_draws_memory_over_time_with_and_without(tmp_path: Path) -> None:
    model, path = graft.grad(network(), recompute="sqrt"), tmp_path / "gradients.onnx"
    without, with_it = courses_of(model) or ([], [])
    assert max(without) == kernel_memory(graft.grad(network())) and max(with_it) == kernel_memory(model)
    save_model(model, path)
    program = graft.compile(path, ["llvm"], threads=1, cache=False)
    page = html(report_on_program("gradients", program))
    assert "without recomputation: peak 152.0 KiB" in page and courses_picture((without, with_it)) in page
    assert 'id="memory"' not in html(report_on_program("plain", graft.compile(graft.grad(network()), ["llvm"])))


def test_long_courses_are_thinned_to_the_largest_of_neighbours() -> None:
    model = graft.grad(network())
    state_courses(model, [*range(1, 3001)], [7, 5])
    without, with_it = courses_of(model) or ([], [])
    assert (len(without), without[:2], without[-1], with_it) == (1000, [3, 6], 3000, [7])


def test_metadata_that_is_no_course_is_refused() -> None:
    model = graft.grad(network())
    for text in ("7", "[[], []]", '[["a"], [1]]', "[[1]]", "{"):
        model.metadata_props[COURSES] = text
        with pytest.raises(ModelError, match=r"the model's metadata 'graft\.memory' is no two lists of bytes: "):
            courses_of(model)
