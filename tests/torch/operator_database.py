"""PyTorch's own database of operators under `torch.compile(backend="graft")`, sample by sample, against eager PyTorch.

``python -m tests.torch.operator_database [--dtype float32] [--samples 1] [--shard 0/1]`` prints what fails
and what stays in PyTorch; ``make test-torch`` runs it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.utils import same
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from graft.torch.backend import SEEN, Seen

OPTIONS = {"backends": ["llvm"]}
TYPES = {name: getattr(torch, name) for name in ("float32", "float64", "int64", "bool", "bfloat16")}


@dataclass
class Outcome:
    """What became of one sample: ``fault`` is "" where it agrees, ``left`` are operators that stayed in PyTorch."""

    operator: str
    dtype: str
    number: int
    fault: str = ""
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    compiled: int = 0


UNWRITTEN = ("new_empty_strided", "empty_permuted", "new_empty", "empty_strided", "empty_like", "empty")
"""Operators whose results hold anything."""
TIES = ("topk", "sort", "msort", "argsort", "kthvalue")
"""Operators that choose among equal elements as they like: places, and whose gradients go there."""


def name_of(operator: Any) -> str:
    return operator.name + (f".{operator.variant_test_name}" if operator.variant_test_name else "")


def _values(result: Any) -> list[Any]:
    return [one for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)]


def _leaves(values: Any) -> list[torch.Tensor]:
    return [one for one in tree_flatten(values)[0] if isinstance(one, torch.Tensor) and one.requires_grad]


def _run(function: Any, sample: Any, gradients: bool) -> tuple[list[Any], list[Any]]:
    given = tree_map(
        lambda one: one.detach().clone().requires_grad_(one.requires_grad) if isinstance(one, torch.Tensor) else one,
        (sample.input, sample.args, sample.kwargs),
    )
    torch.manual_seed(0)
    results = _values(function(given[0], *given[1], **given[2]))
    floats = [one for one in results if one.requires_grad]
    if not gradients or not floats:
        return [one.detach() for one in results], []
    generator = torch.Generator().manual_seed(1)
    tangents = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in floats]
    grads = torch.autograd.grad(floats, _leaves(given), tangents, allow_unused=True)
    return [one.detach() for one in results], [one for one in grads if one is not None]


def check(operator: Any, sample: Any, dtype: str, number: int, gradients: bool) -> Outcome | None:
    """Return what becomes of a sample; None where eager PyTorch itself refuses it."""
    outcome = Outcome(name_of(operator), dtype, number)
    gradients = gradients and operator.supports_autograd and TYPES[dtype].is_floating_point
    try:
        expected, expected_grads = _run(operator.op, sample, gradients)
    except Exception:
        return None
    torch._dynamo.reset()
    seen = Seen()
    SEEN.append(seen)
    try:
        compiled = torch.compile(operator.op, backend="graft", options=OPTIONS)
        found, found_grads = _run(compiled, sample, gradients)
        outcome.fault = _compared(operator, sample, expected + expected_grads, found + found_grads)
        if outcome.fault.startswith("wrong numbers") and dtype == "bfloat16":  # eager's own error is the measure
            exact = _run(operator.op, sample.transform(_widened), gradients)
            outcome.fault = _compared(
                operator, sample, expected + expected_grads, found + found_grads, exact[0] + exact[1]
            )
        if outcome.fault.startswith("strides") and _strides_of_others(operator, sample, gradients, found + found_grads):
            outcome.fault = ""
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        outcome.fault = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]} ({last.name})"
        text = [line for line in str(error).splitlines() if "Error" in line]
        outcome.fault = text[0][:300] if text else outcome.fault
    finally:
        SEEN.remove(seen)
    for graph in seen.graphs:
        outcome.compiled += sum(bool(row.part) for row in graph.rows)
        outcome.left.update((row.operator, row.reason) for row in graph.rows if not row.part)
    return outcome


def _strides_of_others(operator: Any, sample: Any, gradients: bool, found: list[Any]) -> bool:
    """Whether PyTorch's own decompositions, without a compiler or by inductor, give the strides that were found."""
    for backend in ("aot_eager_decomp_partition", "inductor"):
        torch._dynamo.reset()
        plain = _run(torch.compile(operator.op, backend=backend), sample, gradients)
        if [_strides(one) for one in plain[0] + plain[1]] == [_strides(one) for one in found]:
            return True
    return False


def _strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides that tell where elements are."""
    return [
        stride for stride, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1 and tensor.numel()
    ]


def _widened(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().double().requires_grad_(value.requires_grad) if is_float else value


def _compared(operator: Any, sample: Any, expected: list[Any], found: list[Any], exact: list[Any] | None = None) -> str:
    has_ties = operator.name in TIES and sample.input.unique().numel() < sample.input.numel()
    if len(expected) != len(found):
        return f"{len(found)} tensors for {len(expected)}"
    for place, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{other.dtype}{list(other.shape)} for {one.dtype}{list(one.shape)}"
        if one.layout != torch.strided:
            one, other = one.to_dense(), other.to_dense()
        if 0 not in one.stride() and _strides(one) != _strides(other):
            return f"strides {other.stride()} for {one.stride()}"
        if operator.name in UNWRITTEN or (has_ties and (place or operator.name == "argsort")):
            continue
        wide = torch.float64 if one.dtype.is_floating_point else one.dtype
        tolerance = {torch.float32: 2e-4, torch.float64: 1e-7, torch.bfloat16: 3e-2}.get(one.dtype, 1e-3)
        reference = one.to(wide) if exact is None else exact[place]
        if not same(one, other, reference, tol=tolerance, equal_nan=True, exact_dtype=True):
            return f"wrong numbers: {other.flatten()[:4].tolist()} for {one.flatten()[:4].tolist()}"
    return ""


def outcomes(dtype: str, samples: int, shard: int, shards: int, gradients: bool, only: str = "") -> Iterator[Outcome]:
    for place, operator in enumerate(op_db):
        if place % shards != shard or TYPES[dtype] not in operator.dtypes or (only and only != name_of(operator)):
            continue
        grads = gradients and operator.supports_autograd and TYPES[dtype].is_floating_point
        try:
            drawn = operator.sample_inputs("cpu", TYPES[dtype], requires_grad=grads)
            for number, sample in zip(range(samples), drawn, strict=False):
                if (found := check(operator, sample, dtype, number, gradients)) is not None:
                    yield found
        except (RuntimeError, ModuleNotFoundError, AssertionError) as error:
            print(f"{name_of(operator)}: no samples: {error}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32", choices=[*TYPES])
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--only", default="")
    parser.add_argument("--forward", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("graft").setLevel(logging.ERROR)
    shard, shards = map(int, arguments.shard.split("/"))
    counts: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    started = time.monotonic()
    for one in outcomes(arguments.dtype, arguments.samples, shard, shards, not arguments.forward, arguments.only):
        kind = "wrong" if one.fault else "whole" if not +one.left else "part" if one.compiled else "eager"
        counts[kind] += 1
        reasons.update({key: 1 for key in one.left if not key[1].startswith("a view")})
        if one.fault:
            print(f"{one.operator} {one.dtype} {one.number}: {one.fault}", flush=True)
    for (operator, reason), count in reasons.most_common():
        print(f"{count:4} {operator}: {reason[:160]}")
    print(dict(counts), f"{time.monotonic() - started:.0f} s")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
