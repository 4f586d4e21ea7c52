"""Names of values inside of a program by the source: ``model.py:22:15-36 dot`` is what that expression makes there.

Unlike names of instructions they are the same in equal layers, and stay when the program is exported again. What
derivation makes of a line for gradients is not meant: nobody wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from shardc.hlo.ir.ir import Instruction, Metadata

__all__ = ["SourceName", "is_derived", "parse_source_name", "source_name", "source_place"]

#: What JAX calls operations that derivation made of others, in their names.
_DERIVED = "transpose("

_NAME = re.compile(
    r"(?P<file>[^\n]+?):(?P<line>\d+)(?::(?P<column>\d+)(?:-(?P<end>\d+))?)? (?P<opcode>[a-z][a-z0-9-]*)"
)


@dataclass(frozen=True, slots=True)
class SourceName:
    """Operations ``opcode`` of ``line`` in ``file``, of which the last folders may be told; -1: in any columns."""

    file: str
    line: int
    column: int
    end_column: int
    opcode: str

    def means(self, i: Instruction) -> bool:
        m = i.metadata
        if m is None or i.opcode != self.opcode or m.source_line != self.line or is_derived(i):
            return False
        given, known = PurePath(self.file).parts, PurePath(m.source_file).parts
        columns = self.column in (-1, m.source_column) and self.end_column in (-1, _end_column(m))
        return columns and known[-len(given) :] == given

    def among(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        return [i for i in instructions if self.means(i)]


def parse_source_name(text: str) -> SourceName | None:
    """What ``model.py:22 dot``, ``model.py:22:15 dot`` or ``model.py:22:15-36 dot`` means; None for other names."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    line, column, end = (int(found[k] or -1) for k in ("line", "column", "end"))
    return SourceName(found["file"], line, column, end, found["opcode"])


def source_name(i: Instruction) -> str:
    """The name of an operation by its source, with the file's own name; empty where the source is not known."""
    m = i.metadata
    if m is None or not m.source_file or is_derived(i):
        return ""
    return f"{PurePath(m.source_file).name}:{_columns(m)} {i.opcode}"


def source_place(i: Instruction) -> str:
    """Where an operation stands: ``model.py:22:15-36``, with the columns of its expression, from 0 on."""
    m = i.metadata
    if m is None or not m.source_file:
        return m.place if m is not None else ""
    return f"{m.source_file}:{_columns(m)}"


def is_derived(i: Instruction) -> bool:
    """Whether derivation made the operation of another one, for gradients."""
    return i.metadata is not None and _DERIVED in i.metadata.op_name


def _columns(m: Metadata) -> str:
    end = _end_column(m)
    return f"{m.source_line}:{m.source_column}{f'-{end}' if end else ''}"


def _end_column(m: Metadata) -> int:
    """Where the expression ends, if on the line that it begins on."""
    return m.source_end_column if m.source_end_line == m.source_line else 0
