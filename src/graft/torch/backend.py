"""The backend ``graft`` of `torch.compile`, which finds it by the entry point group ``torch_dynamo_backends``."""

from __future__ import annotations

import logging
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import (
    AOTInput,
    InputMutationAOTOutput,
    PlainAOTInput,
    SubclassGetAttrAOTInput,
    SubclassGetAttrAOTOutput,
)
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass
from torch.utils.weak import WeakIdKeyDictionary

from graft.core.collection import collection_paused
from graft.errors import OptionError, UnsupportedError
from graft.torch.aten.table import decompositions
from graft.torch.compiling import Boxed, CompiledGraph, boxed, check, compile_graph
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


cached_decompositions = cache(decompositions)
"""For all graphs: what libraries register later, the dispatcher takes apart while AOTAutograd traces."""
FROZEN: Any = WeakIdKeyDictionary()
"""How often buffers had been written to when they were frozen: those that were again since are constants no more."""
SEEN: list[Seen] = []
"""Who wants to know what is compiled: `explain` puts itself here while it compiles."""


def graft(
    module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Compile a graph of Dynamo's; `torch.compile` calls it. ``options`` are those of `Options`.

    Raises GraftError for options that no graph can be compiled with, for a ``mode``, which is inductor's, and for
    ``aot_compile``.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    if mode is not None:
        raise OptionError(
            f"backend 'graft' of torch.compile has no mode '{mode}': modes are inductor's; give options", option="mode"
        )
    if torch._functorch.config.bundled_autograd_cache:  # PyTorch would pickle the results as inductor's
        raise UnsupportedError(
            "backend 'graft' of torch.compile does not take part in 'aot_compile'; export the module by "
            "graft.torch.export, or leave out guards: "
            "options={'guard_filter_fn': torch.compiler.skip_all_guards_unsafe}"
        )
    chosen = options_of(options)
    check(chosen)
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        text = reason.reason.partition("\n")[0]
        text = "a branch on what a tensor holds" if text.startswith("generic_jump") else text
        line = reason.user_stack[-1]
        for seen in SEEN:
            seen.breaks.append(f"{text} ({os.path.basename(line.filename)}:{line.lineno})")
    frozen = _frozen(module) if chosen.freeze and not torch.is_grad_enabled() else {}
    compiler = partial(_compiler, options=chosen)
    plain = [part for one in frozen.values() for part in _parts(one) if part.device.type == "cpu"]
    digests = Digests(plain if folder_of(chosen) is not None else ())
    once = partial(compiler, frozen=frozen, digests=digests)
    with collection_paused():
        return aot_autograd(  # type: ignore[no-any-return]
            fw_compiler=compiler, bw_compiler=compiler, inference_compiler=once,
            partition_fn=min_cut_rematerialization_partition, decompositions=cached_decompositions(),
            keep_inference_input_mutations=False,
        )(module, example_inputs)  # fmt: skip


def _compiler(
    module: GraphModule, example_inputs: Sequence[Any], options: Options,
    frozen: Mapping[int, torch.Tensor] | None = None, digests: Digests | None = None,
) -> Boxed:  # fmt: skip
    """Compile one graph of AOTAutograd's; where that fails, PyTorch computes it, or it is an error under ``strict``."""
    constants = _constants(module, frozen) if frozen else {}
    with _disable_current_modes():
        compiled = compile_graph(module, options, constants, digests)
    for seen in SEEN:
        seen.graphs.append(compiled)
    return boxed(compiled)


def _constants(module: GraphModule, frozen: Mapping[int, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of a graph's inputs that do not change, by the names of their placeholders.

    AOTAutograd describes each input by its place among those of Dynamo's graph, or as part of a subclass there, and
    each result that is written back to one.
    """
    written = {
        _place(whole.mutated_input)[0] for one in module.graph.output_node().meta["desc"]
        if isinstance(whole := _whole(one)[0], InputMutationAOTOutput)
    }  # fmt: skip
    read = [(node, *_place(node.meta["desc"])) for node in module.graph.find_nodes(op="placeholder")]
    kept = {place for _, place, _ in read if place in frozen and place not in written}
    kept -= {place for place in kept if FROZEN.get(frozen[place]) not in (None, _version(frozen[place]))}
    _guard_versions([frozen[place] for place in kept if not isinstance(frozen[place], torch.nn.Parameter)])
    found: dict[str, torch.Tensor] = {}
    for node, place, attributes in read:
        if place in kept:
            value = frozen[place]
            for one in attributes:
                value = getattr(value, one)
            if value.device.type == "cpu":
                found[node.name] = value
    return found


def _version(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to; those of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _guard_versions(buffers: Sequence[torch.Tensor]) -> None:
    """Have Dynamo compile anew once a buffer was written to, as another graph of the module's call may do."""
    from torch._dynamo.guards import install_guard
    from torch._dynamo.source import GlobalStateSource
    from torch._guards import Guard

    FROZEN.update((one, _version(one)) for one in buffers)
    versions = [(weakref.ref(one), _version(one)) for one in buffers]

    def unchanged(_: object) -> bool:
        return all((one := known()) is not None and _version(one) == version for known, version in versions)

    def frozen_buffers(builder: Any, guard: Guard) -> None:
        builder.guard_manager.root.add_lambda_guard(unchanged, ["frozen buffers are as they were"], guard.user_stack)

    if buffers:
        install_guard(Guard(GlobalStateSource(), frozen_buffers))


def _place(described: AOTInput) -> tuple[int, list[str]]:
    """Return the place of an input of Dynamo's graph and the attributes of a subclass; -1 for what is none."""
    whole, attributes = _whole(described)
    return (whole.idx if isinstance(whole, PlainAOTInput) else -1), attributes


def _whole(described: Any) -> tuple[Any, list[str]]:
    """Return what a part of a subclass is a part of, and the attributes that lead to the part."""
    attributes: list[str] = []
    while isinstance(described, SubclassGetAttrAOTInput | SubclassGetAttrAOTOutput):
        attributes.insert(0, described.attr)
        described = described.base
    return described, attributes


def _frozen(module: GraphModule) -> dict[int, torch.Tensor]:
    """Return the parameters and buffers among a graph's inputs, by their places, but for those that are rebound.

    What the graph writes to is left out when AOTAutograd has found it (`_constants`).
    """
    found: dict[int, tuple[Any, torch.Tensor]] = {}
    for place, node in enumerate(module.graph.find_nodes(op="placeholder")):
        argument = node.meta.get("grapharg")
        source, value = getattr(argument, "source", None), getattr(argument, "example", None)
        if source is not None and source.guard_source.is_unspecialized_nn_module() and isinstance(value, torch.Tensor):
            found[place] = source, value
    rebound = _rebound() if found else ()
    found = {place: one for place, one in found.items() if _plain_name(one[0].base) not in rebound}
    _guard_identity([source for source, _ in found.values()])
    return {place: value for place, (_, value) in found.items()}


def _guard_identity(sources: Sequence[Any]) -> None:
    """Have Dynamo compile anew for other parameters than these: all modules of a class share its compiled code.

    The module that holds them is guarded, too, since only then Dynamo's limit of recompilations counts for each module.
    """
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import LocalSource
    from torch._dynamo.symbolic_convert import InstructionTranslator

    guarded = list(sources)
    for one in {source.get_base() for source in sources}:
        scope = InstructionTranslator.current_tx().output.local_scope
        if isinstance(one, LocalSource) and isinstance(scope.get(one.local_name), torch.nn.Module):
            guarded.append(one)
    install_guard(*(one.make_guard(GuardBuilder.ID_MATCH) for one in guarded))


def _rebound() -> set[str]:
    """Return the dicts of parameters and buffers in which the Python that Dynamo traces puts other tensors."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._dynamo.variables import ConstDictVariable

    effects = InstructionTranslator.current_tx().output.side_effects
    return {
        _plain_name(one.source) for one in effects.id_to_variable.values()
        if isinstance(one, ConstDictVariable) and one.source is not None and effects.is_modified(one)
    }  # fmt: skip


def _plain_name(source: Any) -> str:
    return re.sub(r"\.__dict__\['(\w+)'\]", r".\1", source.name)


def _parts(value: Any) -> list[Any]:
    """Return the plain tensors that a subclass is made of, in AOTAutograd's order; of anything else only itself."""
    if not is_traceable_wrapper_subclass(value):
        return [value]
    return [part for name in value.__tensor_flatten__()[0] for part in _parts(getattr(value, name))]
