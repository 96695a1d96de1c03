"""Backends that are broken, each in one way, and what the kit says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.testkit.conformance.cases.outcome import Result
from graft.testkit.conformance.suite import bad, suite_of
from tests.testkit.backends import plugin

CALL = "def kernel(self, node, arrays):\n    {}\nNpu.kernel = kernel"
BROKEN = {
    "claims what it cannot do": (
        "1/Sub",
        "from graft.plugins.supports import rules_of\nNpu.single = graft.supports('Sub')(Npu.single)\n"
        "Npu.rules = rules_of(Npu)",
        "fails when it runs:",
    ),
    "returns another shape": ("1/Relu", CALL.format("return [np.zeros((1, 2, 7), np.float32)]"), "fails when it runs:"),
    "returns another type": ("1/Relu", CALL.format("return [arrays[0].astype(np.int8)]"), "fails when it runs:"),
    "returns too few arrays": ("1/Relu", CALL.format("return []"), "fails when it runs:"),
    "returns a wrong result": ("1/Relu", CALL.format("return [np.abs(arrays[0])]"), "output 'y': "),
    "changes its inputs": (
        "1/Relu",
        CALL.format(
            "out = np.maximum(arrays[0], 0)\n"
            "    ctypes.memset(arrays[0].ctypes.data, 7, arrays[0].nbytes)\n    return [out]"
        ),
        "changes its input 'x'",
    ),
    "keeps a pointer to an input": (
        "1/Relu",
        "import functools\nclass View:\n"
        "    def __init__(self, a): self.at, self.shape = a.ctypes.data, a.shape\n"
        "    def read(self):\n"
        "        count = int(np.prod(self.shape))\n"
        "        kind = ctypes.c_float * count\n"
        "        return np.ctypeslib.as_array(kind.from_address(self.at)).reshape(self.shape).copy()\n"
        "def load(self, graph, constants):\n    kept = []\n    def run(inputs):\n"
        "        if not kept: kept.append(View(inputs[0]))\n"
        "        return [np.maximum(kept[0].read(), 0)]\n    return run\nNpu.load = load",
        "a second call is wrong though the first was right: output 'y': ",
    ),
    "gives out one array for all calls": (
        "1/Relu",
        "def load(self, graph, constants):\n    calls = []\n    def run(inputs):\n        calls.append(1)\n"
        "        return [np.maximum(inputs[0], 0) + np.float32(len(calls) > 1)]\n    return run\nNpu.load = load",
        "a second call is wrong though the first was right: output 'y': ",
    ),
    "prints to the standard output": (
        "1/Relu", CALL.format("print('kernel', node.name)\n    return [np.maximum(arrays[0], 0)]"),
        "prints to the standard output: kernel Relu",
    ),
    "prints from C": (
        "1/Relu", CALL.format("__import__('os').write(1, b'kernel')\n    return [np.maximum(arrays[0], 0)]"),
        "prints to the standard output: kernel",
    ),
    "refuses without a reason": (
        "0/registration", "Npu.supports = lambda self, node: False",
        "backend 'npu': supports(Relu (node 'probe_Relu')) returned a bare False; "
        "return graft.Reject(code, text) instead",
    ),
    "raises when it is asked": (
        "0/registration", "def supports(self, node): raise OSError('no device')\nNpu.supports = supports",
        "plugin 'npu_plugin' raised OSError in supports(Relu (node 'probe_Relu')) of backend 'npu': no device",
    ),
    "raises when it loads": (
        "1/Relu", "def load(self, graph, constants): raise OSError('no device')\nNpu.load = load",
        "cannot be compiled:",
    ),
    "changes its mind": (
        "0/registration",
        "turn = [0]\ndef supports(self, node):\n    turn[0] += 1\n"
        "    return turn[0] % 2 == 0 or graft.Reject('cost', 'not now')\nNpu.supports = supports",
        "asked twice, it takes other nodes of one model",
    ),
    "has a fingerprint of the moment": (
        "0/registration", "ticks = [0]\ndef fingerprint(self):\n    ticks[0] += 1\n    return str(ticks[0])\n"
        "Npu.fingerprint = fingerprint",
        "fingerprint() gives another text each time; make it depend on the library's version alone",
    ),
    "cannot run here": (
        "0/registration", "Npu.available = lambda self: 'no npu in this machine'",
        "cannot run here: no npu in this machine",
    ),
}  # fmt: skip
REFUSED = {
    "is built for another level of the interface": (
        "Npu.api_level = 99",
        "plugin 'npu_plugin' (file npu_plugin.py): backend 'npu' was written for plugin interface 99, "
        "this Graft supports 1; pip install --upgrade graft-compiler",
    ),
    "shadows a name of Graft's": (
        "Npu.name = 'llvm'",
        "backend 'llvm' is Graft's own and is claimed by file npu_plugin.py; choose another name",
    ),
    "raises in every hook": (
        "@graft.hookimpl\ndef graft_backends(): raise OSError('no backends')",
        "plugin 'npu_plugin' raised OSError in graft_backends: no backends",
    ),
}


def results(file: Path, group: str) -> list[Result]:
    suite = suite_of("npu", plugin_files=[file])
    level, _, subject = group.partition("/")
    return suite.run(int(level), subject)


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_a_backend_is_a_failure_that_says_it(case: str, tmp_path: Path) -> None:
    group, source, said = BROKEN[case]
    wrong = bad(results(plugin(tmp_path, source), group))
    assert wrong, "the kit finds nothing"
    assert wrong[0].text.startswith(said), wrong[0].text


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("wide, narrow", "the earlier row 'npu.wide' takes them"),
        ("narrow", "its check refuses them"),
    ],
)
def test_a_composite_that_never_forms_is_a_failure_that_names_the_row_before_it(
    rows: str, why: str, tmp_path: Path
) -> None:
    source = (
        "from graft.patterns.composite import Composite\n"
        "wide = ('npu.wide', is_op('Relu')(is_op('MatMul')(wildcard(), wildcard())))\n"
        "narrow = ('npu.narrow', is_op('Relu')(is_op('MatMul')(wildcard(), is_constant())), lambda match: False)\n"
        f"Npu.patterns = tuple(Composite(*row) for row in ({rows},))\n"
        "KERNELS['npu.wide'] = KERNELS['npu.matmul_relu']"
    )
    (found,) = [one for one in results(plugin(tmp_path, source), "2/npu.narrow") if one.name.endswith("is-taken")]
    assert found.text == f"no model that the kit writes is taken by it: {why}; give a model with models=[...]"


DERIVATIVE = """
from graft.plugins.supports import rules_of
def vjp(f):
    g = f("Mul", f.gradient, f.where(f("Greater", f.result(), f.like(0.0, f.result())), f.result()))
    return [f("MatMul", g, f.swapped(f.input(1))), f.scaled(f("MatMul", f.swapped(f.input(0)), g), FACTOR)]
pattern = is_op("Relu")(is_op("MatMul")(wildcard().has_rank(2), is_constant()))
@graft.supports(pattern, name="npu.matmul_relu", vjp=vjp)
def matmul_relu(self, match):
    return True
Npu.matmul_relu = matmul_relu
Npu.rules = rules_of(Npu)
"""


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, []), (1.5, ["output 'c0_grad':"])])
def test_a_derivative_of_a_vendor_is_held_against_that_of_the_operators(
    factor: float, wrong: list[str], tmp_path: Path
) -> None:
    found = results(plugin(tmp_path, f"FACTOR = {factor}{DERIVATIVE}"), "2/npu.matmul_relu")
    tried = [one for one in found if one.name.endswith("-gradient")]
    assert tried
    assert {one.text[:17] for one in bad(tried)} == set(wrong)


@pytest.mark.parametrize("case", REFUSED)
def test_a_plugin_that_is_not_let_in_fails_level_0(case: str, tmp_path: Path) -> None:
    source, said = REFUSED[case]
    wrong = bad(results(plugin(tmp_path, source), "0/registration"))
    assert wrong[0].text == said


@pytest.mark.parametrize("group", ["0/registration", "1/Relu", "1/Conv", "2/npu.matmul_relu", "3/models-0"])
def test_nothing_is_wrong_with_a_good_backend(group: str, tmp_path: Path) -> None:
    assert bad(results(plugin(tmp_path), group)) == []


def test_a_backend_that_takes_nothing_is_checked_by_no_model_and_the_kit_says_so(tmp_path: Path) -> None:
    file = plugin(tmp_path, "Npu.rules = ()\nNpu.patterns = ()")
    (found,) = results(file, "5/threads")
    assert (found.name, found.verdict) == ("5/threads/samples", "not-run")
    assert found.text == (
        "no model was found that the backend takes a part of and computes rightly; "
        "give one of yours with models=[...] or --model"
    )


@pytest.mark.parametrize("group", ["4/without-compiler", "4/missing-library"])
def test_a_plugin_that_is_a_file_is_loaded_where_there_is_no_compiler(group: str, tmp_path: Path) -> None:
    found = results(plugin(tmp_path), group)
    assert {one.verdict for one in found} == {"passed"}, found
