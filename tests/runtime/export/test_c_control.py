"""Control flow, counted outputs and threads in C projects: built under sanitizers, compared with the program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import graft
from graft.errors import ArtifactError

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g '
SANITIZED = "-g -O1 -Wall -Wextra -Wpedantic -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
CHOICE = """(float[n,4] x, float[4,4] w, bool c) => (float[n,4] y) {
  [choice] y = If (c) <then_branch = t () => (float[n,4] a) { q = MatMul(x, w) r = Softmax(q) a = MatMul(r, w) },
                       else_branch = e () => (float[n,4] b) { b = Abs(x) }> }"""
GROWS = """(float[3] x, float[3] z, int64 trip, bool go) => (float[3] last, float[3] s, float[k,3] rows, float[3] u) {
  h = Neg(x)
  last, s, rows = Loop (trip, go, h, z) <body = b (int64 i, bool c, float[3] p, float[3] q)
      => (bool d, float[3] q1, float[3] t, float[3] r) {
    d = Identity(c) q1 = Identity(q) f = Cast <to = 1> (i) a = Add(p, q) t = Add(a, f) r = Neg(t) }>
  u = Exp(last) }"""
SCAN = """(float[4] x, float[2,6,4] xs, float[6,4] ys) => (float[4] y, float[2,6,4] rows, float[6,4] back) {
  y, rows, back = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
      scan_output_axes = [1, 0], scan_output_directions = [0, 1],
      body = b (float[4] s, float[2,4] v, float[4] w) => (float[4] t, float[2,4] r, float[4] m) {
        m = Mul(s, w) e = Add(v, m) r = Tanh(e)
        k = ReduceMean <keepdims = 0> (r, axis) t = Add(k, m) }> (x, xs, ys) }"""
NESTED = """(float[n,4] x, float[4,4] w, int64 trip) => (float[n,4] y) <float high = {3.0}> {
  y = Loop (trip, , x) <body = b (int64 i, bool c, float[n,4] p) => (bool d, float[n,4] t) {
    d = Identity(c) m = ReduceMax <keepdims = 0> (p) big = Greater(m, high)
    t = If (big) <then_branch = u () => (float[n,4] a) { g = MatMul(p, w) a = Softmax(g) },
                  else_branch = v () => (float[n,4] e) { one = Exp(p) e = Add(one, x) }> }> }"""


def compiled(text: str, **options: object) -> graft.Program:
    options = {"target": "generic", "threads": 1, **options}  # vectors take a sanitized compiler a minute
    return graft.compile(onnx.parser.parse_model(TEXT + text), ["c_source"], **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def tools() -> None:
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def built(folder: Path, flags: str = SANITIZED) -> str:
    done = subprocess.run(
        ["make", "-C", folder, "check", f"CFLAGS={flags}"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def feeds(program: graft.Program, **named: object) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    extents = [tuple(one if isinstance(one, int) else 3 for one in info.shape or ()) for info in program.inputs]
    given = {
        info.name: draw.standard_normal(shape).astype(info.dtype)
        for info, shape in zip(program.inputs, extents, strict=True)
        if info.name not in named
    }
    types = {info.name: info.dtype for info in program.inputs}
    return given | {name: np.asarray(value, types[name]) for name, value in named.items()}


@pytest.mark.parametrize("choice", [True, False])
def test_a_branch_is_chosen_when_the_project_runs(tmp_path: Path, choice: bool) -> None:
    program = compiled(CHOICE, dims={"n": (1, 5)}, memory="maximum")
    program.export_c_project(tmp_path / "m", feeds(program, c=choice))
    built(tmp_path / "m")


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_carries_values_and_counts_what_it_stacks(tmp_path: Path, trips: int) -> None:
    program = compiled(GROWS, memory="maximum")
    program.export_c_project(tmp_path / "m", feeds(program, trip=trips, go=True))
    header = (tmp_path / "m" / "m.h").read_text(encoding="utf-8")
    assert "int m_run(int64_t *k, const float x[3], " in header
    assert " *   k: how many slices rows has room for; the function writes how many it made\n" in header
    built(tmp_path / "m")


def test_too_little_room_for_what_a_loop_stacks_is_an_error(tmp_path: Path) -> None:
    program = compiled(GROWS, memory="maximum")
    program.export_c_project(tmp_path / "m", feeds(program, trip=2, go=True))
    (tmp_path / "m" / "main.c").write_text(
        """
#include <stdio.h>
#include "m.h"
int main(void) {
  float x[3] = {1}, z[3] = {2}, last[3], s[3], rows[6], u[3];
  const int64_t trip[1] = {3};
  const bool go[1] = {true};
  int64_t room = 2;
  printf("%d", m_run(&room, x, z, trip, go, last, s, rows, u));
}
""",
        encoding="utf-8",
    )
    said = built(tmp_path / "m").splitlines()
    assert said[-1].startswith("1"), said


def test_a_scan_goes_along_any_axis_both_ways(tmp_path: Path) -> None:
    text = SCAN.replace("rows, float[6,4] back) {", "rows, float[6,4] back) <int64[1] axis = {0}> {")
    program = compiled(text)
    program.export_c_project(tmp_path / "m", feeds(program))
    built(tmp_path / "m")


def test_control_flow_inside_control_flow_shares_one_arena(tmp_path: Path) -> None:
    program = compiled(NESTED, dims={"n": (1, 6)}, memory="maximum")
    done = program.export_c_project(tmp_path / "m", feeds(program, trip=5))
    assert done.arena_bytes >= 2 * 6 * 4 * 4
    built(tmp_path / "m")


def refused(tmp_path: Path, program: graft.Program, **options: object) -> str:
    with pytest.raises(ArtifactError) as caught:
        program.export_c_project(tmp_path / "m", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    return caught.value.message


def test_a_value_that_grows_while_it_goes_round_is_refused(tmp_path: Path) -> None:
    text = """(float[n] x) => (float[k] y) <int64 trip = {3}> {
      y = Loop (trip, , x) <body = b (int64 i, bool c, float[j] p) => (bool d, float[l] t) {
        d = Identity(c) t = Concat <axis = 0> (p, p) }> }"""
    program = compiled(text, dims={"n": (1, 4)}, memory="binding")
    assert "depends on data, which has a C form only in outputs of the model that a loop makes" in refused(
        tmp_path, program, inputs={"x": np.ones(2, np.float32)}
    )


THREADED = """(float[64,128] x, float[128,256] w) => (float[64,256] y, float[256,64] z) {
  h = MatMul(x, w) y = Softmax(h) z = Transpose(h) }"""


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_threads_share_the_loops_of_kernels(tmp_path: Path, sanitizer: str) -> None:
    done = compiled(THREADED).export_c_project(tmp_path / "m", threads=3)
    assert "#define M_THREADS 3 " in (tmp_path / "m" / "m.h").read_text(encoding="utf-8")
    assert "graft_parallel_for(context" in (tmp_path / "m" / "m_kernels.c").read_text(encoding="utf-8")
    (tmp_path / "m" / "main.c").write_text(
        """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "m.h"
#include "m_check.h"
static float x[64 * 128], w[128 * 256], results[4][2][64 * 256];
static _Alignas(64) unsigned char arenas[4][M_ARENA_BYTES + 64];
static void *run(void *number) {
  float(*own)[64 * 256] = results[(uintptr_t)number];
  for (int i = 0; i < 20; i++)
    if (m_run_in(arenas[(uintptr_t)number], x, w, own[0], own[1]) != M_OK) abort();
  return NULL;
}
int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 64 * 128; i++) x[i] = (float)(i % 17) / 17;
  for (int i = 0; i < 128 * 256; i++) w[i] = (float)(i % 23) / 23;
  for (uintptr_t i = 0; i < 4; i++) pthread_create(threads + i, NULL, run, (void *)i);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  for (int i = 1; i < 4; i++)
    if (memcmp(results[i], results[0], sizeof results[0])) return 2;
  return m_check() != 0;
}
""",
        encoding="utf-8",
    )
    built(tmp_path / "m", SANITIZED.replace("address,undefined", sanitizer))
    assert done.arena_bytes % 64 == 0


def test_a_board_has_no_threads(tmp_path: Path) -> None:
    assert refused(tmp_path, compiled(THREADED), threads=2, profile="bare-metal") == (
        "a project of profile 'bare-metal' has no threads, and 2 are wanted; leave them out"
    )
