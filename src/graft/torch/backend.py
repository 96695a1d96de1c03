"""The backend ``graft`` of `torch.compile`, which finds it by the entry point group ``torch_dynamo_backends``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from graft.core.collection import collection_paused
from graft.torch.aten.table import decompositions
from graft.torch.compiling import Boxed, CompiledGraph, boxed, compile_graph
from graft.torch.options import Options, options_of
from graft.torch.programs import Digests, folder_of

log = logging.getLogger("graft")
TESTED = "2.13"
"""The version of PyTorch that this is tested with."""


def warn_of_version(version: str) -> None:
    """Warn of a version of PyTorch that is not the one that this is tested with."""
    if version.split(".")[:2] != TESTED.split("."):
        log.warning("PyTorch %s is another version than %s, which Graft is tested with", version, TESTED)


warn_of_version(torch.__version__)


@dataclass(frozen=True)
class Seen:
    """What was compiled while somebody looked."""

    graphs: list[CompiledGraph] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    """Why Dynamo ended a graph, and at which line of Python."""


SEEN: list[Seen] = []
"""Who wants to know what is compiled: `explain` puts itself here while it compiles."""


def graft(
    module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's; `torch.compile` calls it. ``options`` are those of `Options`."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    chosen = options_of(options)
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        text = reason.reason.partition("\n")[0]
        text = "a branch on what a tensor holds" if text.startswith("generic_jump") else text
        line = reason.user_stack[-1]
        for seen in SEEN:
            seen.breaks.append(f"{text} ({os.path.basename(line.filename)}:{line.lineno})")
    frozen = _frozen(module) if chosen.freeze and not torch.is_grad_enabled() else {}
    compiler = partial(_compiler, options=chosen)
    digests = Digests(frozen.values() if folder_of(chosen) is not None else ())
    once = partial(compiler, frozen=frozen, digests=digests)
    with collection_paused():
        return aot_autograd(  # type: ignore[no-any-return]
            fw_compiler=compiler, bw_compiler=compiler, inference_compiler=once,
            partition_fn=min_cut_rematerialization_partition, decompositions=decompositions(),
            keep_inference_input_mutations=False,
        )(module, example_inputs)  # fmt: skip


def _compiler(
    module: GraphModule, example_inputs: Sequence[Any], options: Options,
    frozen: Mapping[int, torch.Tensor] | None = None, digests: Digests | None = None,
) -> Boxed:  # fmt: skip
    """Compile one graph of AOTAutograd's; where that fails, PyTorch computes it, or it is an error under ``strict``."""
    holders = [node for node in module.graph.nodes if node.op == "placeholder"]
    constants = {
        holders[place].name: one for place, one in (frozen or {}).items()
        if place < len(holders) and _is_same(holders[place].meta.get("val"), one)
    }  # fmt: skip
    with _disable_current_modes():
        compiled = compile_graph(module, options, constants, digests)
    for seen in SEEN:
        seen.graphs.append(compiled)
    return boxed(compiled)


def _is_same(value: Any, tensor: torch.Tensor) -> bool:
    same = isinstance(value, torch.Tensor) and value.shape == tensor.shape and value.dtype == tensor.dtype
    return same and value.stride() == tensor.stride()


def _frozen(module: GraphModule) -> dict[int, torch.Tensor]:
    """Return the parameters and buffers among a graph's inputs, by their places; none where it writes to one.

    AOTAutograd passes a subclass as the tensors that it is made of, so that each has a place.
    """
    found: dict[int, torch.Tensor] = {}
    place = 0
    for node in module.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        first, parts = place, _parts(getattr(argument, "example", None))
        place += len(parts)
        source = getattr(argument, "source", None)
        if source is None or not source.guard_source.is_unspecialized_nn_module():
            continue
        is_written = any(_name(user).endswith("_") and not _name(user).endswith("__") for user in node.users)
        for number, part in enumerate(parts):
            if isinstance(part, torch.Tensor) and part.device.type == "cpu" and not is_written:
                found[first + number] = part
    return found


def _parts(value: Any) -> list[Any]:
    """Return the plain tensors that a subclass is made of, in AOTAutograd's order; of anything else only itself."""
    if not is_traceable_wrapper_subclass(value):
        return [value]
    return [part for name in value.__tensor_flatten__()[0] for part in _parts(getattr(value, name))]


def _name(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
