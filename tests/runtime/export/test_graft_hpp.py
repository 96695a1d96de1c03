"""The header for C++: 16-bit floats against NumPy's and ml_dtypes', what may be an output, and what a host gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import graft

FLAGS = ("-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror")
STANDARDS = ("17", "20")
CONVERSIONS = """
#include <cstdio>
#include <cstdlib>
#include "graft/graft.hpp"
template <class T> void convert(const std::vector<float> &given) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = T::of_bits(static_cast<std::uint16_t>(bits));
    std::fwrite(&value, sizeof value, 1, stdout);
  }
  for (const float value : given) {
    const std::uint16_t bits = T(value).bits();
    std::fwrite(&bits, sizeof bits, 1, stdout);
  }
}
int main(int, char **arguments) {
  std::vector<float> given(std::strtoul(arguments[1], nullptr, 10));
  if (std::fread(given.data(), sizeof(float), given.size(), stdin) != given.size()) return 1;
  convert<graft::Half>(given);
  convert<graft::BFloat16>(given);
}
"""
OUTPUTS = """
#include <array>
#include "graft/graft.hpp"
#if __cplusplus >= 202002L
#include <span>
#endif
using Shape = std::vector<std::int64_t>;
using graft::MutableTensor;
template <class Elements> constexpr bool takes = std::is_constructible<MutableTensor, Elements, Shape>::value;
static_assert(takes<std::vector<float> &> && takes<std::array<graft::Half, 4> &> && takes<float (&)[4]>, "");
static_assert(takes<graft::Span<float>> && takes<graft::Span<float> &>, "a span is not the elements");
static_assert(!takes<std::vector<float>> && !takes<std::array<float, 4>>, "gone with the statement");
static_assert(!takes<const std::vector<float> &> && !takes<const float (&)[4]> && !takes<graft::Span<const float>>, "");
static_assert(std::is_constructible<graft::Tensor, const std::vector<float> &, Shape>::value, "inputs are read");
#if __cplusplus >= 202002L
static_assert(std::is_constructible<std::span<const float>, graft::Span<const float>>::value, "");
static_assert(std::is_constructible<graft::Tensor, std::span<const float> &, Shape>::value, "");
#endif
int main() {}
"""
HOST = """
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include "graft/graft.hpp"
GRAFT_DECLARE_MODEL(halves)
GRAFT_DECLARE_MODEL(negate)
static std::atomic<long> blocks{0}, all{0};
static void *take(void *, std::size_t bytes) {
  ++blocks;
  ++all;
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}
static void give_back(void *, void *block) {
  --blocks;
  std::free(block);
}
static void serve() {
  const GraftAllocator allocator = {take, give_back, nullptr};
  const graft::ThreadPool pool(*graft_model_negate(), 2, &allocator);
  graft::LoadOptions options;
  options.allocator = &allocator;
  options.thread_pool = pool.get();
  graft::Program halves(*graft_model_halves(), &options), negate(*graft_model_negate(), &options);
  std::vector<graft::Half> x{graft::Half(1.5f), graft::Half(-2.0f), graft::Half(0.1f), graft::Half(7.0f)};
  std::string kinds;
  auto note = [&kinds](const GraftCallTime &time) { kinds += time.kind ? time.kind : "runtime"; };
  graft::RunOptions timed;
  timed.time(note);
  const auto outputs = halves.run({graft::Tensor(x, {4})}, &timed);
  for (const graft::Half value : outputs[0].values<graft::Half>()) std::printf("%g ", static_cast<double>(value));
  std::printf("%s\\n", kinds.c_str());
  std::vector<float> big(200000, 2.0f), out(200000);
  auto often = [&] {
    std::vector<float> own(200000);
    for (int i = 0; i < 50; ++i) {
      negate.run({graft::Tensor(big, {200000})}, {graft::MutableTensor(own, {200000})});
      if (own[199999] != -2.0f) std::abort();
    }
  };
  std::thread other(often);
  often();
  other.join();
  try {
    outputs[0].values<graft::BFloat16>();
  } catch (const graft::Error &error) {
    std::printf("%s\\n", error.what());
  }
}
int main() {
  serve();
  std::printf("%ld %d\\n", blocks.load(), all > 10);
}
"""


@pytest.fixture(autouse=True)
def compiler() -> None:
    for tool in ("c++", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def build(tmp_path: Path, source: str, *linked: object, standard: str = "17", flags: tuple[str, ...] = FLAGS) -> Path:
    (tmp_path / "main.cpp").write_text(source, encoding="utf-8")
    command = ["c++", f"-std=c++{standard}", *flags, f"-I{graft.runtime.include_dir()}", tmp_path / "main.cpp", *linked]
    done = subprocess.run(
        [*map(str, command), "-o", str(tmp_path / "main")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "main"


def test_halves_convert_as_those_of_numpy(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    every = np.arange(65536, dtype=np.uint16)
    wide = np.concatenate(
        [every.view(kind).astype(np.float32).view(np.uint32) for kind in (np.float16, ml_dtypes.bfloat16)]
    )
    half = np.uint32(0x1000)  # the middle between two of float16, which have 13 bits less
    patterns = [wide, wide + half, wide + half - 1, wide + half + 1, wide + 0x8000, wide + 0x7FFF, wide + 0x8001]
    given = np.concatenate([*patterns, draw.integers(0, 2**32, 200000, np.uint32)]).view(np.float32)
    program = build(tmp_path, CONVERSIONS)
    done = subprocess.run([program, str(given.size)], input=given.tobytes(), capture_output=True, timeout=60)
    assert done.returncode == 0
    got, each = done.stdout, 4 * 65536 + 2 * given.size
    for number, kind in enumerate((np.float16, ml_dtypes.bfloat16)):
        mine = got[number * each : (number + 1) * each]
        values, rounded = np.frombuffer(mine[: 4 * 65536], np.float32), np.frombuffer(mine[4 * 65536 :], np.uint16)
        np.testing.assert_array_equal(values, every.view(kind).astype(np.float32))
        np.testing.assert_array_equal(np.signbit(values), every >= 0x8000)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = given.astype(kind)
        numbers = ~np.isnan(given)
        np.testing.assert_array_equal(rounded[numbers], expected.view(np.uint16)[numbers])
        assert np.isnan(rounded.view(kind)[~numbers].astype(np.float32)).all()


@pytest.mark.parametrize("standard", STANDARDS)
def test_what_is_gone_or_constant_is_no_output(tmp_path: Path, standard: str) -> None:
    build(tmp_path, OUTPUTS, "-fsyntax-only", standard=standard)


def exported(tmp_path: Path, name: str, text: str) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    graft.compile(model, ["llvm"], threads=2).export_library(tmp_path / f"{name}.so")
    return tmp_path / f"{name}.so"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_libraries_share_threads_and_memory_of_a_host(tmp_path: Path, sanitizer: str) -> None:
    halves = exported(tmp_path, "halves", "g (float16[4] x) => (float16[4] y) { y = Add(x, x) }")
    negate = exported(tmp_path, "negate", "g (float[200000] x) => (float[200000] y) { y = Neg(x) }")
    flags = (*FLAGS, "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    program = build(tmp_path, HOST, halves, negate, f"-Wl,-rpath,{tmp_path}", "-pthread", flags=flags)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "3 -4 0.199951 14 native",
        "an output has another element type than the one it is read as",
        "0 1",
    ]
