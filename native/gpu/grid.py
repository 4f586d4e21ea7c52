"""One thread of a grid as code: what a kernel's body may ask for besides plain LLVM instructions.

A kernel is written once, against `GridCode`. The same body becomes PTX (`nvptx.py`), AMD code (`amdgpu.py`), or, for
tests, x86 code in which every GPU thread is a coroutine and a barrier suspends it (`emulated.py`): whatever order the
threads then run in between barriers, the results must be the same. Blocks run in any order, one after another too: none
may wait for another.

Blocks are one-dimensional, grids have up to three dimensions. Pointers are generic; kernels get one per array, aligned
to 16 bytes, and the device's number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.math.vector import I32, constant

__all__ = ["MMA", "GridCode", "Mma", "from_words", "to_words"]


@dataclass(frozen=True, slots=True)
class Mma:
    """A product of small matrices by one warp: ``d[m, n] = a[m, k] @ b[k, n] + c[m, n]``, as PTX's ``mma.sync``.

    ``a``, ``b`` and ``c`` are the number of 32-bit (``f64``: 64-bit) registers that a thread holds of each; what lies
    where is PTX ISA's layout of the fragments (row-major a, column-major b).
    """

    name: str
    m: int
    n: int
    k: int
    operand: str
    accumulator: str
    a: int
    b: int
    c: int


#: The shapes that kernels may use, by name.
MMA = {
    "bf16": Mma("bf16", 16, 8, 16, "bf16", "f32", 4, 2, 4),
    "f16": Mma("f16", 16, 8, 16, "f16", "f32", 4, 2, 4),
    "tf32": Mma("tf32", 16, 8, 8, "tf32", "f32", 4, 2, 4),
    "f64": Mma("f64", 8, 8, 4, "f64", "f64", 1, 1, 2),
}


class GridCode(ABC):
    """How a body says the things that LLVM has no portable words for. One per kernel function.

    Order of use: `define`, blocks and code of the body, `enter` at the end of the entry block behind all stack slots,
    `leave` wherever the body ends (instead of ``ret void``). A call that synchronises may end the builder's block and
    leave the builder in a new one.
    """

    warp: int = 32

    @abstractmethod
    def define(
        self, module: ir.Module, name: str, pointers: int, readonly: Collection[int] = (), threads: int = 0
    ) -> ir.Function:
        """A kernel that takes ``pointers`` arrays and an i32, the device. Nothing that a launch writes overlaps the
        arrays numbered in ``readonly``. Blocks have at most ``threads`` threads (0: 1024)."""

    @abstractmethod
    def pointers(self, function: ir.Function) -> Sequence[ir.Value]:
        """The kernel's arrays."""

    @abstractmethod
    def device(self, function: ir.Function) -> ir.Value:
        """The device's number, i32."""

    @abstractmethod
    def enter(self, b: ir.IRBuilder) -> None:
        """Behind the stack slots, before everything else."""

    @abstractmethod
    def leave(self, b: ir.IRBuilder) -> None:
        """The thread is done; terminates the block."""

    @abstractmethod
    def thread(self, b: ir.IRBuilder) -> ir.Value:
        """This thread in its block, i32."""

    @abstractmethod
    def block(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        """This block in the grid, i32."""

    @abstractmethod
    def blocks(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        """Blocks of the grid, i32."""

    @abstractmethod
    def shared(self, b: ir.IRBuilder, offset: int) -> ir.Value:
        """The block's shared memory from byte ``offset`` on (a constant; 16-byte aligned when offset is). How much
        there is says the launch."""

    @abstractmethod
    def barrier(self, b: ir.IRBuilder) -> None:
        """All threads of the block come here, and see what the others wrote before. Not where some stay away."""

    @abstractmethod
    def warp_barrier(self, b: ir.IRBuilder) -> None:
        """The same for the threads of a warp."""

    def lane(self, b: ir.IRBuilder) -> ir.Value:
        """This thread in its warp, i32."""
        return b.and_(self.thread(b), constant(I32, self.warp - 1))

    def shuffle_xor(self, b: ir.IRBuilder, value: ir.Value, mask: int) -> ir.Value:
        """``value`` (any scalar of 1, 2, 4 or 8 bytes) of the lane whose number differs by ``mask``. All lanes of the
        warp come here."""
        return self.shuffle_from(b, value, b.xor(self.lane(b), constant(I32, mask)))

    def shuffle_up(self, b: ir.IRBuilder, value: ir.Value, distance: int) -> ir.Value:
        """``value`` of the lane ``distance`` before; lanes that have none get their own."""
        lane, step = self.lane(b), constant(I32, distance)
        return self.shuffle_from(b, value, b.select(b.icmp_unsigned("<", lane, step), lane, b.sub(lane, step)))

    @abstractmethod
    def shuffle_from(self, b: ir.IRBuilder, value: ir.Value, lane: ir.Value) -> ir.Value:
        """``value`` of ``lane`` (i32, below the warp's size)."""

    @abstractmethod
    def mma(
        self, b: ir.IRBuilder, kind: Mma, a: Sequence[ir.Value], bs: Sequence[ir.Value], c: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """``a @ b + c`` of a warp: registers as `Mma` says (i32 for packed operands and tf32, float or double else)."""

    @abstractmethod
    def load_matrix(self, b: ir.IRBuilder, place: ir.Value, count: int, transposed: bool = False) -> list[ir.Value]:
        """PTX's ``ldmatrix.x{count}``: 8x8 matrices of 16-bit elements, whose rows' addresses in shared memory lanes
        8*m to 8*m+7 give for matrix m. One i32 per matrix."""

    @abstractmethod
    def copy_async(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, nbytes: int, taken: ir.Value | None = None
    ) -> None:
        """Start to copy 4, 8 or 16 bytes from global to shared memory (zeros where i1 ``taken`` is false)."""

    @abstractmethod
    def commit_copies(self, b: ir.IRBuilder) -> None:
        """What this thread started since the last commit is one group."""

    @abstractmethod
    def await_copies(self, b: ir.IRBuilder, pending: int) -> None:
        """Wait until at most ``pending`` of this thread's groups are under way; others' need a barrier after it."""

    @abstractmethod
    def fence(self, b: ir.IRBuilder) -> None:
        """What this thread wrote before is seen by all threads of the device before what it writes after."""


def bits_of(t: ir.Type) -> int:
    """The width of a scalar or vector type that goes through registers."""
    if isinstance(t, ir.VectorType):
        return int(t.count) * bits_of(t.element)
    if isinstance(t, ir.IntType):
        return int(t.width)
    return {"half": 16, "float": 32, "double": 64}[str(t)]


def to_words(b: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    """The bits of a number or vector in i32 registers, the lowest first; narrower ones are filled with zeros."""
    bits = bits_of(value.type)
    if bits < 32:
        return [b.zext(b.bitcast(value, ir.IntType(bits)), I32)]
    if bits == 32:
        return [b.bitcast(value, I32)]
    words = b.bitcast(value, ir.VectorType(I32, bits // 32))
    return [b.extract_element(words, constant(I32, n)) for n in range(bits // 32)]


def from_words(b: ir.IRBuilder, words: Sequence[ir.Value], t: ir.Type) -> ir.Value:
    """What `to_words` took apart."""
    bits = bits_of(t)
    if bits < 32:
        return b.bitcast(b.trunc(words[0], ir.IntType(bits)), t)
    if bits == 32:
        return b.bitcast(words[0], t)
    both: ir.Value = ir.Constant(ir.VectorType(I32, len(words)), ir.Undefined)
    for n, word in enumerate(words):
        both = b.insert_element(both, word, constant(I32, n))
    return b.bitcast(both, t)
