"""The text of what only a device has: LLVM's intrinsics, and pieces of PTX where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from graft.plugins.codegen.llvm_ir.builder import Builder
from graft.plugins.cuda.machines import BULK
from graft.plugins.cuda.warpgroups import GroupProduct, multiplied

FULL_WARP = "-1"
ALIGNED = 16
"""Bytes to which shared memory is aligned where nothing asks for more."""


class DeviceText:
    """The intrinsics of LLVM's NVPTX."""

    def unit(self, builder: Builder, name: str, axis: str, extent: int | None) -> str:
        """Return the number (i32) of this ``thread`` or ``block`` along an axis; there are ``extent``, if known."""
        register = f"llvm.nvvm.read.ptx.sreg.{'tid' if name == 'thread' else 'ctaid'}.{axis}"
        builder.module.declarations.setdefault(register, f"declare i32 @{register}()")
        span = f"range(i32 0, {extent}) " if extent is not None and extent > 0 else ""
        return builder.let_entry(f"call {span}i32 @{register}()")

    def shared(self, builder: Builder, offset: int, alignment: int) -> str:
        """Return a pointer into the shared memory of the block."""
        # All names of shared memory that is given at launch are for one place, aligned as the strictest wants.
        name = "shared" if alignment <= ALIGNED else f"shared_{alignment}"
        text = f"@{name} = external addrspace(3) global [0 x i8], align {max(ALIGNED, alignment)}"
        builder.module.declarations.setdefault(name, text)
        place = f"getelementptr (i8, ptr addrspace(3) @{name}, i32 {offset})"
        return builder.let_entry(f"addrspacecast ptr addrspace(3) {place} to ptr")

    def shared_address(self, builder: Builder, pointer: str) -> str:
        """Return the address (i32) within shared memory that a pointer is for."""
        near = builder.let(f"addrspacecast ptr {pointer} to ptr addrspace(3)")
        return builder.let(f"ptrtoint ptr addrspace(3) {near} to i32")

    def fence_async(self, builder: Builder) -> None:
        """Let what reads shared memory past the threads see what this thread has written, behind the next barrier."""
        builder.emit('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')

    def multiply_group(
        self, builder: Builder, product: GroupProduct, factors: Sequence[str], sums: Sequence[str]
    ) -> list[str]:
        """Return a warpgroup's sums and the products of factors in shared memory, given by matrix descriptors (i64)."""
        return multiplied(builder, product, factors, sums)

    def barrier(self, builder: Builder, scope: str) -> None:
        """Wait for the threads of the ``block`` or of the ``warp``."""
        if scope == "warp":
            builder.intrinsic("nvvm.bar.warp.sync", "void", [("i32", FULL_WARP)], [])
        else:
            builder.intrinsic("nvvm.barrier0", "void", [], [])

    def load_matrices(self, builder: Builder, row: str, count: int, *, is_transposed: bool) -> list[str]:
        """Return a word (i32) of each of ``count`` matrices of 8 rows of 16 bytes, which the warp's threads name.

        Transposed, matrices are of elements of 16 bits, and rows become columns.
        """
        near = builder.let(f"addrspacecast ptr {row} to ptr addrspace(3)")
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if is_transposed else ''}.b16.p3"
        words = "{ " + ", ".join(["i32"] * count) + " }"
        builder.module.declarations.setdefault(name, f"declare {words} @{name}(ptr addrspace(3))")
        loaded = builder.let_anew(f"call {words} @{name}(ptr addrspace(3) {near})")
        return [builder.let(f"extractvalue {words} {loaded}, {number}") for number in range(count)]

    def multiply(
        self, builder: Builder, instruction: str, llvm: str, a: Sequence[str], b: Sequence[str], c: Sequence[str]
    ) -> list[str]:
        """Return a warp's ``c + a b``: four words of a, two of b, four sums (float or i32)."""
        word = "<2 x half>" if instruction == "mma_float16" else "i32"
        total = "i32" if "int8" in instruction else "float"
        factors = [*a, *b]
        if word != "i32":
            factors = [builder.let(f"bitcast i32 {one} to {word}") for one in factors]
        sums = "{ " + ", ".join([total] * 4) + " }"
        kinds = ", ".join([*[word] * 6, *[total] * 4])
        builder.module.declarations.setdefault(llvm, f"declare {sums} @llvm.{llvm}({kinds})")
        given = ", ".join([*(f"{word} {one}" for one in factors), *(f"{total} {one}" for one in c)])
        result = builder.let_anew(f"call {sums} @llvm.{llvm}({given})")
        return [builder.let(f"extractvalue {sums} {result}, {number}") for number in range(4)]

    def exchange(self, builder: Builder, value: str, mask: int) -> str:
        """Return the value (float) that the thread of the warp has whose number is this one's xor a mask."""
        name = "llvm.nvvm.shfl.sync.bfly.f32"
        builder.module.declarations.setdefault(name, f"declare float @{name}(i32, float, i32, i32)")
        return builder.let_anew(f"call float @{name}(i32 {FULL_WARP}, float {value}, i32 {mask}, i32 31)")

    def power_of_2(self, builder: Builder, exponent: str) -> str:
        """Return 2 to a power (float), as the device approximates it."""
        return builder.let(f'call float asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"(float {exponent})')

    def report(self, builder: Builder, words: str, code: int, numbers: Sequence[str]) -> None:
        """Write a code and numbers (i64) to ``words``, unless another thread has done so."""
        taken = builder.let_anew(f"cmpxchg ptr {words}, i64 0, i64 {code} monotonic monotonic")
        name = builder.fresh("report")
        builder.emit(f"br i1 {builder.let(f'extractvalue {{ i64, i1 }} {taken}, 1')}, label %{name}, label %{name}.end")
        builder.label(name)
        for place, number in enumerate(numbers, 1):
            at = builder.let_anew(f"getelementptr i64, ptr {words}, i64 {place}")
            builder.emit(f"store i64 {number}, ptr {at}, align 8")
        builder.emit(f"br label %{name}.end")
        builder.label(f"{name}.end")

    def copy(self, builder: Builder, target: str, source: str, size: int) -> None:
        """Begin to copy bytes from the device's memory to shared memory."""
        kind = "cg" if size == 16 else "ca"
        near = builder.let(f"addrspacecast ptr {target} to ptr addrspace(3)")
        far = builder.let(f"addrspacecast ptr {source} to ptr addrspace(1)")
        pointers = [("ptr addrspace(3)", near), ("ptr addrspace(1)", far)]
        builder.intrinsic(f"nvvm.cp.async.{kind}.shared.global.{size}", "void", pointers, [])

    def stay_loop(self, builder: Builder) -> None:
        """Say that the loop around is not written out."""
        builder.emit('call void asm sideeffect ".pragma \\22nounroll\\22;", ""()')

    def commit(self, builder: Builder) -> None:
        """End a group of copies."""
        builder.intrinsic("nvvm.cp.async.commit.group", "void", [], [])

    def wait(self, builder: Builder, pending: int) -> None:
        """Wait until at most so many groups of this thread's copies are under way."""
        builder.intrinsic("nvvm.cp.async.wait.group", "void", [("i32", str(pending))], [])

    def open_bulk(self, builder: Builder, arrived: str) -> None:
        """Make an mbarrier for bulk copies, one in each of its phases."""
        address = self.shared_address(builder, arrived)
        builder.emit(_assembly("mbarrier.init.shared::cta.b64 [$0], 1;", "r", f"i32 {address}"))

    def copy_bulk(self, builder: Builder, target: str, source: str, arrived: str, size: int) -> None:
        """Begin to copy bytes from the device's memory to shared memory; ``arrived`` tells when they are there."""
        to, barrier_address = self.shared_address(builder, target), self.shared_address(builder, arrived)
        far = builder.let(f"addrspacecast ptr {source} to ptr addrspace(1)")
        number = builder.let(f"ptrtoint ptr addrspace(1) {far} to i64")
        lines = (
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$2], {size};",
            f"{BULK.text['ptx']} [$0], [$1], {size}, [$2];",
        )
        builder.emit(_assembly("\\0A".join(lines), "r,l,r", f"i32 {to}, i64 {number}, i32 {barrier_address}"))

    def wait_bulk(self, builder: Builder, arrived: str, parity: str) -> None:
        """Wait until the phase of an mbarrier whose number has a parity (i32) is over."""
        lines = (
            "{", ".reg .pred %over;", "AGAIN:", "mbarrier.try_wait.parity.shared::cta.b64 %over, [$0], $1;",
            "@!%over bra AGAIN;", "}",
        )  # fmt: skip
        barrier_address = self.shared_address(builder, arrived)
        builder.emit(_assembly("\\0A".join(lines), "r,r", f"i32 {barrier_address}, i32 {parity}"))


def _assembly(text: str, constraints: str, given: str) -> str:
    return f'call void asm sideeffect "{text}", "{constraints},~{{memory}}"({given})'
