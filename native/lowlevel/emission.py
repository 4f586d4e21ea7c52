"""Functions in LLVM's own language, instruction by instruction.

Operands are texts: ``%v7``, ``42``, ``null``. This is several times as fast as building objects and printing them, and
the text is made at every start: it is what objects are kept under.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Block", "Code"]


@dataclass(slots=True, eq=False)
class Block:
    """A basic block. ``is_reached``: some branch goes there; ``is_over``: it ends with a branch or a return."""

    label: str
    lines: list[str] = field(default_factory=list)
    is_reached: bool = False
    is_over: bool = False


class Code:
    """The body of one function. ``here`` is the block that grows."""

    def __init__(self) -> None:
        self._memory: list[str] = []
        self._blocks: list[Block] = []
        self._count = 0
        self.here = Block("begin", is_reached=True)
        self.enter(self.here)

    def block(self, name: str) -> Block:
        """A new block; it stands in the function from when it is entered."""
        self._count += 1
        return Block(f"{name}.{self._count}")

    def enter(self, block: Block) -> None:
        """Go on in a block."""
        self._blocks.append(block)
        self.here = block

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.here.lines.append(text)

    def make(self, text: str) -> str:
        """An instruction, and its result."""
        self._count += 1
        self.here.lines.append(f"%v{self._count} = {text}")
        return f"%v{self._count}"

    def memory(self, t: str, align: int) -> str:
        """Memory of the function, as long as it runs."""
        self._count += 1
        self._memory.append(f"%v{self._count} = alloca {t}, align {align}")
        return f"%v{self._count}"

    def branch(self, block: Block) -> None:
        block.is_reached = True
        self.end(f"br label %{block.label}")

    def branch_if(self, condition: str, yes: Block, no: Block) -> None:
        yes.is_reached = no.is_reached = True
        self.end(f"br i1 {condition}, label %{yes.label}, label %{no.label}")

    def end(self, text: str) -> None:
        """The last instruction of a block."""
        self.do(text)
        self.here.is_over = True

    def phi(self, t: str, ways: Sequence[tuple[str, Block]]) -> str:
        """Which of the values the way here gave."""
        return self.make(f"phi {t} " + ", ".join(f"[ {value}, %{block.label} ]" for value, block in ways))

    def text(self) -> str:
        first = ["entry:", *self._memory, "br label %begin"]
        rest = [line for block in self._blocks for line in (f"{block.label}:", *block.lines)]
        return "\n".join([*first, *rest])
