"""Scans of Scans: the same results, gradients that keep fewer states, and Scans that stay as they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graft
from graft.errors import ModelError
from graft.training import SGD, Trainer, notes_of
from graft.training.editing import edited
from graft.training.kernel_memory import kernel_memory
from graft.training.segments import segment_steps

RNG = np.random.default_rng(3)


def scan(shapes: str, options: str = "", every: tuple[int, ...] = (12, 1, 1)) -> onnx.ModelProto:
    """Return a Scan of one state over ``x``; what it gives in a step is weighed by numbers of the shape ``every``."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> net ({shapes}) => (float loss) {{
            last, every = Scan <num_scan_inputs = 1{options}, body = step (h, v) => (after, given) {{
                p = MatMul (h, w) s = Add (p, v) after = Tanh (s) given = Mul (after, v) }}> (h0, x)
            l = ReduceSum <keepdims = 0> (last) q = Mul (every, weight)
            e = ReduceSumSquare <keepdims = 0> (q) loss = Add (l, e) }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(RNG.normal(0, 0.4, (5, 5)).astype(np.float32), "w"))
    model.graph.initializer.append(numpy_helper.from_array(RNG.uniform(0, 1, every).astype(np.float32), "weight"))
    return model


def lstm(steps: int, directions: int = 2) -> onnx.ModelProto:
    direction = "bidirectional" if directions == 2 else "forward"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> net (float[{steps},4,8] x) => (float loss) {{
            all = LSTM <hidden_size = 16, direction = "{direction}"> (x, w, r)
            loss = ReduceSumSquare <keepdims = 0> (all) }}"""
    )
    for name, width in (("w", 8), ("r", 16)):
        array = RNG.normal(0, 0.3, (directions, 64, width)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def close_gradients(model: onnx.ModelProto, feeds: dict[str, np.ndarray], *wrt: str) -> list[graft.Program]:
    """Hold gradients over segments against those without; return both programs."""
    loaded = graft.load(model)
    forms = [loaded, edited(loaded, segment_steps)]
    programs = [graft.compile(graft.grad(one, wrt=wrt), ["llvm"], threads=1, cache=False) for one in forms]
    plain, found = (program.run(feeds) for program in programs)
    for name, array in plain.items():
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(array), rtol=2e-5, atol=2e-6, err_msg=name)
    return programs


@pytest.mark.parametrize(
    ("x", "options", "every"),
    [
        ("12,3,5", "", (12, 1, 1)),
        ("3,12,5", ", scan_input_axes = [1], scan_output_axes = [-1]", (12,)),
        ("3,5,12", ", scan_input_axes = [-1], scan_input_directions = [1]", (12, 1, 1)),
        ("12,3,5", ", scan_output_directions = [1]", (12, 1, 1)),
    ],
)
def test_a_scan_over_segments_is_the_scan(x: str, options: str, every: tuple[int, ...]) -> None:
    feeds = {
        "x": RNG.normal(size=[int(one) for one in x.split(",")]).astype(np.float32),
        "h0": RNG.normal(size=(3, 5)).astype(np.float32),
    }
    model = scan(f"float[{x}] x, float[3,5] h0", options, every)
    segmented = edited(graft.load(model), segment_steps)
    (node,) = [one for one in segmented.graph if one.op_type == "Scan"]
    assert [one.op_type for one in node.attributes["body"].as_graph()] == ["Scan"]
    close_gradients(model, feeds, "x", "h0", "w")


def loop(going: str, steps: int = 12) -> onnx.ModelProto:
    """Return a Loop of one state, whose body says by ``going`` whether it goes on."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> net (float[3,5] h0) => (float loss) <int64 most = {{{steps}}}> {{
            last, every = Loop <body = step (int64 i, bool c, float[3,5] h) =>
                (bool more, float[3,5] after, float[3,5] kept)
                {{ z = Cast <to = 1> (i) n = Cos (z) p = MatMul (h, w) s = Add (p, n) after = Tanh (s)
                   kept = Mul (after, n) {going} }}> (most, , h0)
            l = ReduceSum <keepdims = 0> (last) e = ReduceSumSquare <keepdims = 0> (every) loss = Add (l, e) }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(RNG.normal(0, 0.4, (5, 5)).astype(np.float32), "w"))
    return model


@pytest.mark.parametrize("going", ["more = Identity (c)", "more = Constant <value = bool {1}> ()"])
def test_a_loop_of_a_known_number_of_steps_is_a_scan_over_segments(going: str) -> None:
    segmented = edited(graft.load(loop(going)), segment_steps)
    (node,) = [one for one in segmented.graph if one.op_type in ("Scan", "Loop")]
    assert (node.op_type, [one.op_type for one in node.attributes["body"].as_graph()]) == ("Scan", ["Scan"])
    close_gradients(loop(going), {"h0": RNG.normal(size=(3, 5)).astype(np.float32)}, "h0", "w")


def test_a_loop_of_many_steps_keeps_few_states() -> None:
    model = loop("more = Identity (c)", 900)
    plain, segmented = (
        graft.compile(graft.grad(model, wrt=["w"], recompute=how), ["llvm"], threads=1) for how in ("none", "sqrt")
    )
    feeds = {"h0": np.ones((3, 5), np.float32)}
    one, other = (np.asarray(program.run(feeds)["w_grad"]) for program in (plain, segmented))
    np.testing.assert_allclose(other, one, rtol=2e-4, atol=1e-4)
    assert segmented.arena_bytes < 0.5 * plain.arena_bytes


def ending(limit: str, end: int) -> onnx.ModelProto:
    """Return a Loop that goes on until a step of its own, or to a limit."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> net (float[3,5] h0, int64 most) => (float loss) {{
            last = Loop <body = step (int64 i, bool c, float[3,5] h) => (bool more, float[3,5] after)
                {{ z = Cast <to = 1> (i) n = Cos (z) p = MatMul (h, w) s = Add (p, n) after = Tanh (s)
                   e = Constant <value = int64 {{{end - 1}}}> () more = Less (i, e) }}> ({limit}, , h0)
            loss = ReduceSumSquare <keepdims = 0> (last) }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(RNG.normal(0, 0.4, (5, 5)).astype(np.float32), "w"))
    return model


@pytest.mark.parametrize(("limit", "most"), [("most", 12), ("most", 100), ("most", 0), ("", 0)])
@pytest.mark.parametrize("end", [1, 31, 32, 33, 70])
def test_a_loop_that_may_end_earlier_is_a_loop_over_segments(limit: str, most: int, end: int) -> None:
    model = ending(limit, end)
    segmented = edited(graft.load(model), segment_steps)
    (node,) = [one for one in segmented.graph if one.op_type == "Loop"]
    assert [one.op_type for one in node.attributes["body"].as_graph() if one.op_type == "Loop"] == ["Loop"]
    feeds = {"h0": RNG.normal(size=(3, 5)).astype(np.float32), "most": np.array(most)}
    close_gradients(model, feeds, "h0", "w")


def test_a_loop_that_may_end_earlier_and_gives_every_step_stays() -> None:
    text = "t = ReduceSum <keepdims = 0> (after) o = Constant <value = float {0}> () more = Greater (t, o)"
    segmented = edited(graft.load(loop(text)), segment_steps)
    (node,) = [one for one in segmented.graph if one.op_type in ("Scan", "Loop")]
    assert "MatMul" in [one.op_type for one in node.attributes["body"].as_graph()]


def test_an_open_extent_beside_the_steps_stays_open() -> None:
    model = scan("float[12,N,5] x, float[N,5] h0")
    feeds = {"x": np.ones((12, 2, 5), np.float32), "h0": np.ones((2, 5), np.float32)}
    close_gradients(model, feeds, "x", "w")


@pytest.mark.parametrize("steps", ["N", "7"])
def test_steps_of_an_open_number_or_a_prime_stay(steps: str) -> None:
    segmented = edited(graft.load(scan(f"float[{steps},3,5] x, float[3,5] h0", every=(1, 3, 1))), segment_steps)
    (node,) = [one for one in segmented.graph if one.op_type == "Scan"]
    assert "MatMul" in [one.op_type for one in node.attributes["body"].as_graph()]


def test_a_recurrent_layer_keeps_the_states_of_a_segment() -> None:
    feeds = {"x": RNG.normal(size=(64, 4, 8)).astype(np.float32)}
    plain, segmented = close_gradients(lstm(64), feeds, "w", "r")
    assert segmented.arena_bytes < 0.7 * plain.arena_bytes


def test_a_budget_below_what_all_steps_keep_is_met_by_segments() -> None:
    model, feeds = lstm(64), {"x": RNG.normal(size=(64, 4, 8)).astype(np.float32)}
    plain = kernel_memory(graft.grad(model, wrt=["w", "r"]))
    budget = 6 * plain // 10
    losses = []
    for recompute in ("none", "sqrt", budget):
        trainer = Trainer(model, "loss", SGD(0.01), wrt=["w", "r"], recompute=recompute, threads=1)
        losses.append([trainer.step(feeds) for _ in range(3)])
        assert recompute == "none" or trainer.program.arena_bytes <= 1.03 * budget
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)
    assert notes_of(graft.grad(model, wrt=["w"], recompute=budget))[0].startswith("recompute: ")
    with pytest.raises(ModelError, match="a budget of 1000 bytes cannot be met: "):
        graft.grad(model, wrt=["w"], recompute=1000)


def test_memory_between_kernels_is_that_of_the_program_with_its_bodies() -> None:
    for recompute in ("none", "sqrt", "min-cut"):
        model = graft.grad(lstm(64, 1), wrt=["w", "r"], recompute=recompute)
        taken = graft.compile(model, ["llvm"], threads=1, cache=False).arena_bytes
        assert 0.95 * taken <= kernel_memory(model) <= taken, recompute
