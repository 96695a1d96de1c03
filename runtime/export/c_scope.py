"""One procedure of a program as C: what stands for its tensors, its symbols, and the shapes over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from graft.runtime.c_operators import cast, displaced, prefix, product
from graft.runtime.dtypes import element_type
from graft.runtime.export.c_names import c_type, distinct, extent_text, identifier
from graft.runtime.export.c_program import CProgram
from graft.runtime.extents import Extent
from graft.runtime.procedure import Procedure


@dataclass(frozen=True)
class CScope:
    """The names of one procedure; those of the entry are the caller's, a body's say positions."""

    program: CProgram
    number: int

    @property
    def procedure(self) -> Procedure:
        """The procedure that is written."""
        return self.program.description.procedures[self.number]

    @property
    def is_entry(self) -> bool:
        """Whether it is the program's entry."""
        return self.number == 0

    @property
    def function(self) -> str:
        """The name of a body's function."""
        return f"{self.program.name}_body{self.number}"

    @cached_property
    def symbols(self) -> Mapping[str, str]:
        """The C expressions of symbols, by name; one that a loop counts is behind a pointer of the caller."""
        if not self.is_entry:
            return {symbol.name: f"s{number}" for number, symbol in enumerate(self.procedure.symbols)}
        late = {symbol.name for symbol in self.program.late_symbols(self.procedure)}
        return {name: prefix("*", own) if name in late else own for name, own in self.program.symbols.items()}

    @cached_property
    def parameters(self) -> Mapping[int, str]:
        """The identifiers of inputs and of outputs that calls write, by tensor."""
        if self.is_entry:
            return self.program.parameters
        outputs = {index: f"out{number}" for number, index in reversed([*enumerate(self.procedure.outputs)])}
        return outputs | {index: f"in{number}" for number, index in enumerate(self.procedure.inputs)}

    @cached_property
    def pointers(self) -> Mapping[int, str]:
        """The identifiers of pointers to what lies in the arena, or in another tensor, and calls are given."""
        given = (
            index for call in self.procedure.calls if call.kind == "call" for index in (*call.inputs, *call.outputs)
        )
        tensors = self.procedure.tensors
        stems = {
            index: identifier(tensors[index].name)
            for index in dict.fromkeys(given)
            if index >= 0 and (tensors[index].storage in ("arena", "view") or self._is_in_blob(index))
        }
        return distinct(stems, [*self.symbols.values(), *self.parameters.values(), *self.program.globals])

    def _is_in_blob(self, index: int) -> bool:
        return self.program.blob and self.procedure.tensors[index].storage == "constant"

    def _storage(self, index: int) -> str:
        """Return where a tensor lies, or what it is a view of."""
        tensor = self.procedure.tensors[index]
        return self._storage(tensor.of) if tensor.storage == "view" else tensor.storage

    def declaration(self, index: int) -> str:
        """Return the definition of such a pointer."""
        tensor = self.procedure.tensors[index]
        const = "" if self._storage(index) in ("arena", "output") else "const "
        kind = c_type(tensor.dtype, f"'{tensor.name}'")
        return f"{const}{kind} *const {self.pointers[index]} = {cast(f'{const}void *', self.values(index))};"

    def signature(self) -> str:
        """Return the parameters of a body's function."""
        rows = ["GraftContext *context", "unsigned char *arena", *(f"int64_t {one}" for one in self.symbols.values())]
        rows += [f"const void *in{number}" for number in range(len(self.procedure.inputs))]
        return ", ".join([*rows, *(f"void *out{number}" for number in range(len(self.procedure.outputs)))])

    def values(self, index: int) -> str:
        """Return what stands for a tensor's elements in C."""
        tensor = self.procedure.tensors[index]
        match tensor.storage:
            case "input" | "output":
                return self.parameters[index]
            case "constant":
                return self.program.constants[tensor.constant]
            case "arena":
                return displaced("arena", tensor.offset)
            case "extents":
                return f"graft_extents{index}"
            case "view":
                root, storage = self.values(tensor.of), self._storage(tensor.of)
                root = root if storage == "arena" else cast("char *" if storage == "output" else "const char *", root)
                return displaced(root, tensor.offset)
            case _:
                raise AssertionError(tensor)

    def text(self, extent: Extent) -> str:
        """Return the C expression of an extent."""
        return extent_text(extent, self.symbols)

    def shape(self, index: int) -> Sequence[Extent]:
        """Return the extents of a tensor."""
        return self.procedure.tensors[index].shape or ()

    def bytes(self, index: int, first: int = 0) -> str:
        """Return the C expression of a tensor's bytes, of its axes from ``first`` on."""
        shape = self.shape(index)[first:]
        size = element_type(self.procedure.tensors[index].dtype).bytes
        size *= prod(extent for extent in shape if isinstance(extent, int))
        factors = [self.text(extent) for extent in shape if not isinstance(extent, int)]
        return product([*factors, *([str(size)] if size != 1 or not factors else [])])

    def size(self, index: int) -> str:
        """Return the C expression of a tensor's bytes, as functions of the library take it."""
        text = self.bytes(index)
        return text if text.isdigit() else f"graft_size({text})"

    def shape_array(self, index: int) -> str:
        """Return the C expression of a tensor's shape, NULL for an input that is absent."""
        if index < 0:
            return "NULL"
        return f"(const int64_t[]){{{', '.join(map(self.text, self.shape(index))) or '0'}}}"
