"""A launch as one LLVM module for the device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Allocate, Buffer, Constant, Function
from graft.core.tensor_ir.visit import walk_statements
from graft.core.types import INT64, element_bits
from graft.errors import CompileError
from graft.plugins.codegen.llvm_ir.builder import ModuleText, Value
from graft.plugins.codegen.llvm_ir.statement import identifier
from graft.plugins.cuda.alignment import ALIGNED
from graft.plugins.cuda.kernel_emitter import KernelEmitter, expanded, has_vectors
from graft.plugins.cuda.launches import Launch

NO_JUMP_TABLES = '"no-jump-tables"="true"'
"""An attribute of LLVM: a switch is comparisons, not a table of targets, which the emulator does not know."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """The LLVM IR of a launch, and the bytes of shared memory that it asks for."""

    text: str
    shared: int


def kernel_text(launch: Launch, function: Function, target: Target) -> KernelText:
    """Return one launch as LLVM IR.

    Raises CompileError for what a device cannot do, and for a kernel that asks for more than a block may have.
    """
    machine = target.machine
    module = ModuleText(target)
    module.is_exact = function.is_exact
    emitter = KernelEmitter(module, launch, machine)
    parameters = []
    for number, buffer in enumerate(launch.buffers):
        emitter.pointers[buffer] = f"%p{number}"
        readonly = buffer in function.input_buffers
        shared = bool(function.in_place) and (buffer in function.output_buffers or readonly)
        attributes = ["ptr", *([] if shared else ["noalias"]), *(["readonly"] if readonly else []), f"%p{number}"]
        parameters.append(" ".join(attributes))
    for number, extent in enumerate(launch.extents):
        name = f"%{identifier(extent.name)}.e{number}"
        emitter.entry.append(f"  {name}.wide = sext i32 {name} to i64")
        emitter.variables[extent] = Value(f"{name}.wide", INT64)
        parameters.append(f"i32 {name}")
    body = expanded(launch.body, target, is_exact=function.is_exact)
    _emit_body(emitter, replace(launch, body=body))
    check_shared(emitter.shared_bytes, launch, function, machine)
    lines = ["entry:", *emitter.entry, "  br label %start", "start:", *emitter.lines, "  ret void", "}"]
    shape = ",".join(map(str, launch.block))
    # Without the least number of blocks, ptxas rather spills than has few of them.
    bounds = f'"nvvm.reqntid"="{shape}" "nvvm.minctasm"="{emitter.blocks}"'
    head = f"define ptx_kernel void @{launch.name}({', '.join(parameters)}) nounwind {NO_JUMP_TABLES} {bounds} {{"
    module.functions.append("\n".join([head, *lines]))
    return KernelText(module.text(), emitter.shared_bytes)


def _emit_body(emitter: KernelEmitter, launch: Launch) -> None:
    """Emit the body; once more, for pointers that are aligned, where several elements are accessed at one time."""
    if not has_vectors(launch):
        emitter.statement(launch.body)
        return
    together = "0"
    for buffer in launch.buffers:
        number = emitter.let(f"ptrtoint ptr {emitter.pointers[buffer]} to i64")
        together = number if together == "0" else emitter.let(f"or i64 {together}, {number}")
    rest = emitter.let(f"and i64 {together}, {ALIGNED - 1}")
    condition = emitter.let(f"icmp eq i64 {rest}, 0")
    emitter.emit(f"br i1 {condition}, label %aligned, label %unaligned")
    for label in ("aligned", "unaligned"):
        emitter.label(label)
        emitter.is_aligned = label == "aligned"
        emitter.push_scope()
        emitter.statement(launch.body)
        emitter.pop_scope()
        emitter.emit("br label %finished")
    emitter.label("finished")


def check_shared(asked: int, launch: Launch, function: Function, machine: Machine) -> None:
    """Raise CompileError for a kernel that asks for more bytes of shared memory than a block may have."""
    memory = machine.memory("shared")
    most = 0 if memory is None else memory.bytes
    if asked > most:
        buffers = [one.buffer for one in walk_statements(launch.body) if isinstance(one, Allocate)]
        parts = ", ".join(f"'{one.name}' {_bytes(one)}" for one in buffers if one.memory == "shared")
        raise CompileError(
            f"kernel '{launch.name}' asks for {asked} bytes of shared memory ({parts}); a block of "
            f"'{machine.name}' has {most}; give it smaller tiles or fewer stages",
            function=function.name,
            shared=asked,
            most=most,
        )


def _bytes(buffer: Buffer) -> int:
    total = element_bits(buffer.dtype) // 8
    for extent in buffer.shape:
        total *= int(extent.value) if isinstance(extent, Constant) else 1
    return total
