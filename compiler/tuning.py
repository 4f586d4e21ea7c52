"""Choices that change how fast a program runs and not what it computes, beyond the rounding of reordered sums.

One frozen value goes down from whoever compiles to passes and kernels; nobody else knows these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["DEFAULT", "Tuning", "kernel_candidates", "program_candidates"]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What may be chosen; the defaults are what everybody gets without tuning.

    Of kernels: ``pieces`` multiplies the number of chunks that work is cut into (0: one thread does all); results
    from ``streamed`` bytes on bypass the caches; big products work in tiles of at most ``tile_rows`` rows, with panels
    ``panel_bytes`` wide and ``panel_depth`` deep; convolutions copy ``patches`` bytes of patches at a time, those of
    3x3 are computed by Winograd's tiles or not.

    On GPUs: ``tf32``: products of f32 may round their operands to 10 bits of mantissa, for tensor cores;
    ``deterministic``: updates that meet in one element of a scatter are combined in their order, not as they come.

    Of the program: a fused kernel holds at most ``fused`` operations; ``merged``: kernels that share big arrays are
    joined.
    """

    pieces: float = 1.0
    streamed: int = 32 << 20
    tile_rows: int = 512
    panel_bytes: int = 1024
    panel_depth: int = 256
    patches: int = 1 << 18
    winograd: bool = True
    tf32: bool = False
    deterministic: bool = True
    fused: int = 96
    merged: bool = True

    def changes(self) -> dict[str, Any]:
        """The fields that are not at their defaults, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


DEFAULT = Tuning()

#: Results smaller than this stay in the caches in any case, in bytes.
_CACHED = 4 << 20
_NEVER = 1 << 62


def kernel_candidates(instruction: Instruction) -> list[tuple[str, tuple[Any, ...]]]:
    """Fields worth trying for a kernel, each with values besides the default; in the order of what they may bring."""
    inside = _inside(instruction)
    found: list[tuple[str, tuple[Any, ...]]] = []
    if "convolution" in inside:
        found += [("winograd", (False,)), ("patches", (1 << 16, 1 << 17, 1 << 19))]
    if "dot" in inside:
        found += [("tile_rows", (128, 256, 1024)), ("panel_depth", (128, 512)), ("panel_bytes", (256, 512))]
    if any(s.is_array and s.nbytes >= _CACHED for s in instruction.shape.leaves()):
        found.append(("streamed", (_CACHED, _NEVER)))
    found.append(("pieces", (0.0, 0.25, 4.0)))
    return found


def program_candidates() -> list[Tuning]:
    """Other ways to cut a program into kernels."""
    return [replace(DEFAULT, merged=False), replace(DEFAULT, fused=24), replace(DEFAULT, fused=8)]


def _inside(instruction: Instruction) -> set[str]:
    called = instruction.attrs.get("calls")
    return {i.opcode for i in called} if isinstance(called, Computation) else {instruction.opcode}
