"""A program as C has it: which of its parts are written, under which names, and how much memory they need.

Nothing is allocated: intermediate tensors lie in one arena, at offsets that were planned when the program was compiled,
behind them what control flow needs, and last the scratch memory of kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, isfinite, prod
from typing import Any

from graft.errors import ArtifactError
from graft.runtime.c_operators import displaced
from graft.runtime.c_source import VARIES, CFunction
from graft.runtime.export.c_layout import Layout, most_of, state_count
from graft.runtime.export.c_names import distinct, identifier, identifiers
from graft.runtime.extents import symbols_of
from graft.runtime.procedure import ALIGNMENT, Call, Module, Procedure, ProgramDescription, SymbolSpec, TensorSpec

_NUMBERS = re.compile(r"^[a-z]\w*?_\d+_\d+_(?=[a-z])")
"""What modules begin the names of their functions with: backend, region, and the number there."""
_OF_KERNEL = re.compile(r"^[a-z]\w*?_\d+_\d+_\w+\.")
"""What the names of constants begin with that are laid out for one kernel."""
_OWN = ("run", "run_in", "check", "weights", "parallel_for", "arena")
"""What other names of a project end with."""


@dataclass(frozen=True)
class CProgram:
    """A program that can be written as C, whose symbols and files are called ``name``; raises ArtifactError if not."""

    name: str
    description: ProgramDescription
    blob: bool = False
    """Whether weights are one file that the assembler brings in, not C arrays."""
    threads: int = 1
    """How many threads share the parallel loops of kernels; each has scratch memory of its own."""

    def __post_init__(self) -> None:
        for module in self.modules:
            if module.source is None or module.source.language != "c":
                raise ArtifactError(
                    f"module '{module.name}' of kind '{module.kind}' has no C source, so that the program cannot be "
                    f"exported as a C project{self._nodes_of(module)}; compile the model with the backend 'c_source' "
                    "alone, or export it as a library",
                    module=module.name,
                )
        for procedure in self.procedures:
            self._check(procedure)

    def _nodes_of(self, module: Module) -> str:
        """Return which nodes of the model a module computes, as far as they have names."""
        number = self.description.modules.index(module)
        nodes = dict.fromkeys(node for call in self._calls() if call.module == number for node in call.origin)
        shown = ", ".join(f"'{node}'" for node in list(nodes)[:3])
        return f" (it computes {shown}{' and others' if len(nodes) > 3 else ''})" if nodes else ""

    def _check(self, procedure: Procedure) -> None:
        late = {symbol.name for symbol in self.late_symbols(procedure)}
        for tensor in procedure.tensors:
            extents = tensor.shape or ()
            is_late = any(symbol.name in late for extent in extents for symbol in symbols_of(extent))
            if tensor.storage == "dynamic" or tensor.shape is None or (is_late and not self._is_counted(tensor)):
                raise ArtifactError(
                    f"the shape of '{tensor.name}' depends on data, which has a C form only in outputs of the model "
                    "that a loop makes; export the program as a library",
                    tensor=tensor.name,
                )
        in_arena = any(tensor.storage == "arena" for tensor in procedure.tensors)
        if procedure.symbols and not procedure.arena_bytes and in_arena:
            raise ArtifactError(
                "the program plans its memory for each binding of its symbols, and a C project has one arena; compile "
                'the model with memory="maximum" and a range for each dimension',
                spelled={'memory="maximum"': "--memory maximum", "a range for each": "--dim with a range for each"},
            )

    def _is_counted(self, tensor: TensorSpec) -> bool:
        """Whether a caller can have room for a tensor whose shape depends on data, and be told how much it took."""
        return tensor.storage == "output" and tensor in self.entry.tensors

    def late_symbols(self, procedure: Procedure) -> tuple[SymbolSpec, ...]:
        """Return the symbols that no input binds: how many slices a loop has made of an output.

        Raise ArtifactError where anything else than a loop decides one.
        """
        found = tuple(one for one in procedure.symbols if procedure.tensors[one.tensor].storage != "input")
        for symbol in found:
            stacks = (index for call in procedure.calls for index in stacked_outputs(call))
            if procedure is not self.entry or symbol.axis != 0 or symbol.tensor not in stacks:
                name = procedure.tensors[symbol.tensor].name
                raise ArtifactError(
                    f"the dimension '{symbol.name}' of '{name}' depends on data, which has a C form only in outputs of "
                    "the model that a loop makes; export the program as a library",
                    tensor=name,
                )
        return found

    @property
    def entry(self) -> Procedure:
        """The procedure that is the entry point: the general one, which runs for all shapes."""
        return self.description.procedures[0]

    @cached_property
    def layout(self) -> Layout:
        """Where in the arena what is."""
        return Layout(self.description.procedures)

    @property
    def procedures(self) -> Iterator[Procedure]:
        """The procedures that are written, callees first."""
        return (self.description.procedures[number] for number in self.layout.reached)

    @property
    def targets(self) -> Sequence[Mapping[str, Any]]:
        """The processors that kernels are written for; none where they are plain C, which every one computes alike."""
        texts = [module.source.text for module in self.modules if module.source is not None]
        is_written_for_one = any("GRAFT_VECTORS" in text or "fma" in text for text in texts)
        return self.description.targets if is_written_for_one else ()

    @property
    def promises_bits(self) -> bool:
        """Whether the same text was compiled for the program itself, which so gives the bits of the project."""
        sources = [module.source for module in self.modules if module.source is not None]
        return all(source.compiler and not source.libraries for source in sources)

    def _calls(self) -> Iterator[Call]:
        return (call for procedure in self.procedures for call in procedure.calls if call.kind == "call")

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """The modules that calls use, in order."""
        used = {call.module for call in self._calls()}
        return tuple(module for number, module in enumerate(self.description.modules) if number in used)

    @cached_property
    def scratch_bytes(self) -> int:
        """The most that a kernel asks for, for one thread; raises ArtifactError where that depends on shapes."""
        calls = ((one, call) for one in self.procedures for call in one.calls if call.kind == "call")
        most = max((self._scratch_of(procedure, call) for procedure, call in calls), default=0)
        return -(-most // ALIGNMENT) * ALIGNMENT

    def _scratch_of(self, procedure: Procedure, call: Call) -> int:
        function, tensors = self.function(call), [*call.inputs, *call.outputs]
        total: float = function.scratch
        for size, *places in function.growing:
            shapes = [procedure.tensors[tensors[number]].shape or () for number in places[::2]]
            axes = zip(shapes, places[1::2], strict=True)
            mosts = [most_of(procedure, shape[axis]) if axis < len(shape) else inf for shape, axis in axes]
            block = size * prod(max(most, 0) for most in mosts)
            total += ceil(block / ALIGNMENT) * ALIGNMENT if isfinite(block) else block
        if function.scratch == VARIES or not isfinite(total):
            raise _refusal(call, "its scratch memory depends on shapes, and a C project has a fixed arena")
        return int(total)

    @property
    def scratch_offset(self) -> int:
        """Where scratch memory begins in the arena."""
        return self.layout.bytes(0)

    @property
    def arena_bytes(self) -> int:
        """The planned arena, what control flow needs, and the scratch memory of each thread."""
        return self.scratch_offset + self.threads * self.scratch_bytes

    @cached_property
    def kernels(self) -> dict[str, str]:
        """The names of the functions of kernels, by those that their modules have for them."""
        entries = [
            module.source.functions[function].entry
            for module in self.modules
            if module.source is not None
            for function in module.functions
            if function in module.source.functions
        ]
        stems = distinct({entry: _NUMBERS.sub("", entry) for entry in entries}, _OWN)
        return {entry: f"{self.name}_{stem}" for entry, stem in stems.items()}

    @cached_property
    def constants(self) -> dict[str, str]:
        """The constants that are used: what stands for their elements, by key."""
        used = dict.fromkeys(
            tensor.constant for one in reversed([*self.procedures]) for tensor in one.tensors if tensor.constant
        )
        if not self.blob:
            named = {tensor.constant: tensor.name for one in self.procedures for tensor in one.tensors}
            taken = [*_OWN, *(one.removeprefix(f"{self.name}_") for one in self.kernels.values())]
            stems = distinct({key: identifier(_OF_KERNEL.sub("", named[key])) for key in used}, taken)
            return {key: f"{self.name}_{stem}" for key, stem in stems.items()}
        places, end = dict[str, str](), 0
        for key in used:
            places[key] = displaced(f"{self.name}_weights", end)
            end += -(-self.description.constants[key].nbytes // ALIGNMENT) * ALIGNMENT
        return places

    def dtype_of(self, key: str) -> str:
        """Return the element type of a constant."""
        return next(tensor.dtype for one in self.procedures for tensor in one.tensors if tensor.constant == key)

    @cached_property
    def globals(self) -> frozenset[str]:
        """What a parameter or a variable must not hide: the model, its functions and constants."""
        own = [*_OWN, *(f"body{number}" for number in self.layout.reached)]
        return frozenset(
            {self.name, *(f"{self.name}_{one}" for one in own), *self.kernels.values(), *self.constants.values()}
        )

    @cached_property
    def symbols(self) -> dict[str, str]:
        """The identifiers of the entry's symbols, by name."""
        return identifiers((symbol.name for symbol in self.entry.symbols), self.globals)

    @cached_property
    def parameters(self) -> dict[int, str]:
        """The identifiers of inputs and outputs, by tensor."""
        tensors = dict.fromkeys((*self.entry.inputs, *self.entry.outputs))
        names = {f"{self.entry.tensors[index].name}\0{index}": index for index in tensors}
        plain = [name.partition("\0")[0] for name in names]
        if len(set(plain)) == len(plain):
            names = dict(zip(plain, names.values(), strict=True))
        own = identifiers(names, [*self.symbols.values(), *self.globals])
        return {index: own[name] for name, index in names.items()}

    def function(self, call: Call) -> CFunction:
        """The C function behind a call."""
        source = self.description.modules[call.module].source
        assert source is not None, call.function
        return source.functions[call.function]


def stacked_outputs(call: Call) -> tuple[int, ...]:
    """Return the outputs of a loop that have one slice for each of its iterations."""
    return call.outputs[state_count(call) :] if call.kind == "loop" else ()


def _refusal(call: Call, reason: str) -> ArtifactError:
    nodes = ", ".join(f"'{node}'" for node in call.origin) or "the program"
    return ArtifactError(f"{nodes} cannot be exported as a C project: {reason}; export it as a library")
