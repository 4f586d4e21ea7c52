"""`Module` -> HLO text that XLA's parser accepts and `read_hlo` turns into an equal module.

A partitioned module prints in the form that XLA compiles unchanged with its own SPMD partitioner switched on: every
instruction is manually sharded, collectives carry channels and global device ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction, Metadata, Module
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import Shape
from shardc.hlo.text.attributes import COMMON, KINDS
from shardc.hlo.text.body import OPCODE_SPELLING
from shardc.hlo.text.header import print_header
from shardc.hlo.text.literals import print_literal
from shardc.hlo.text.manual import XlaForm, as_manual, as_written, computations_as_written
from shardc.hlo.text.metadata import StackFrames, metadata_as_written, print_metadata
from shardc.hlo.text.names import PrintedNames, identifier
from shardc.hlo.text.notations.tiles import print_sharding
from shardc.hlo.transforms.copy_loop_carries import CopyLoopCarries
from shardc.hlo.transforms.separate_collectives import SeparateCollectives
from shardc.hlo.transforms.unwrap_single_tuples import UnwrapSingleTuples

__all__ = ["XLA_FORM", "print_instruction", "print_module"]

#: What a partitioned module goes through to be one that XLA takes: in manual programs it wants collectives of one
#: operand, which its own combiners join again.
XLA_FORM = (SeparateCollectives(), UnwrapSingleTuples(), CopyLoopCarries())

#: Attributes that are printed in front of the parenthesis' end, not as ``key=value``.
_INSIDE = {"parameter": "index", "constant": "literal"}


def print_module(module: Module, *, named_shardings: bool = False, as_is: bool = False, for_xla: bool = True) -> str:
    """The whole module as text.

    Axis-based shardings print as tile assignments, which every XLA reads; with ``named_shardings`` in the named-mesh
    notation, which keeps axes and open dimensions and needs a recent XLA. Names are made unique. With ``as_is``
    only in their computation, and instructions that name no source have the line of text that they were read from as
    theirs: the text reads as a module with the same names and sources. A partitioned module that is not ``for_xla``
    prints as it stands.
    """
    if module.partitioned and for_xla:
        for form in XLA_FORM:
            module = form.run(module)
    known = computations_as_written(module)
    manual = as_manual(module, known, for_xla=for_xla) if module.partitioned or not for_xla else None
    writer = _Writer(PrintedNames(known, scoped=as_is), manual, module.attrs.get("stack_frames"), named_shardings)
    writer.written = metadata_as_written(module)
    if as_is:
        writer.written |= {
            i: placed for i in module.instructions() if (placed := _place_as_source(writer.written.get(i, i.metadata)))
        }
    tails = _tails(module)
    parts = [print_header(module)]
    if writer.frames is not None:
        parts.append(str(writer.frames))
    parts += [writer.computation(c, is_entry=c is module.entry, tail=tails.get(c.name, "")) for c in known]
    return "\n\n".join(parts) + "\n"


def _place_as_source(metadata: Metadata | None) -> Metadata | None:
    """With its place as its source, where it has a place and no source."""
    if metadata is None or metadata.source_file or not metadata.place:
        return None
    file, line, _ = metadata.place.rsplit(":", 2)
    return replace(metadata, source_file=file, source_line=int(line), place="")


def print_instruction(instruction: Instruction) -> str:
    """One instruction as a line of text, with the names it and its operands have."""
    return _Writer(None, None, None, False).instruction(instruction)


def _tails(module: Module) -> dict[str, str]:
    tails: dict[str, str] = {}
    for name, text in module.attrs.get("computation_attributes", ()):
        tails[name] = tails.get(name, "") + f", {text}"
    return tails


class _Writer:
    """Prints instructions; without ``names`` each keeps its own."""

    def __init__(
        self, names: PrintedNames | None, manual: XlaForm | None, frames: StackFrames | None, named: bool
    ) -> None:
        self.names = names
        self.manual = manual
        self.frames = frames
        self.named = named
        self.predecessors: dict[str, str] = {}
        self.shapes: dict[Shape, str] = {}
        self.written: dict[Instruction, Metadata | None] = {}

    def shape(self, shape: Shape) -> str:
        text = self.shapes.get(shape)
        if text is None:
            text = self.shapes[shape] = str(shape)
        return text

    def name(self, instruction: Instruction) -> str:
        return "%" + (identifier(instruction.name) if self.names is None else self.names.instructions[instruction])

    def computation_name(self, computation: Computation) -> str:
        return "%" + (identifier(computation.name) if self.names is None else self.names.computations[computation])

    def computation(self, computation: Computation, *, is_entry: bool, tail: str) -> str:
        parameters = ", ".join(f"{self.name(p)[1:]}: {p.shape.plain}" for p in computation.parameters)
        head = f"{self.computation_name(computation)} ({parameters}) -> {computation.root.shape.plain} {{"
        if is_entry:
            head = "ENTRY " + head
        self.predecessors = {i.name: self.name(i) for i in computation} if self.names is not None else {}
        root = computation.root
        lines = [("  ROOT " if i is root else "  ") + self.instruction(i) for i in computation]
        return "\n".join([head, *lines, "}" + tail])

    def instruction(self, i: Instruction) -> str:
        spelled = OPCODE_SPELLING.get(i.opcode, i.opcode)
        if i.opcode == "constant":
            inside = print_literal(i.attrs["literal"])
        elif i.opcode == "parameter":
            inside = str(i.attrs["index"])
        else:
            inside = ", ".join([self.operand(o) for o in i.operands])
        text = f"{self.name(i)} = {self.shape(i.shape)} {spelled}({inside})"
        for part in self.attributes(i):
            text += ", " + part
        return text

    def operand(self, operand: Instruction) -> str:
        """Its name; the shape too where a line has to stand alone."""
        name = self.name(operand)
        return name if self.names is not None else f"{self.shape(operand.shape)} {name}"

    def attributes(self, i: Instruction) -> Iterator[str]:
        attrs = as_written(i) if self.manual is None else self.manual.attributes(i)
        row = OPS.get(i.opcode)
        kinds = row.attributes if row is not None else {}
        inside = _INSIDE.get(i.opcode)
        for key, kind in kinds.items():
            if key in attrs and key != inside and attrs[key] is not None:
                yield f"{key}={self.value(kind, attrs[key])}"
        sharding = i.sharding if self.manual is None else self.manual.sharding(i)
        if sharding is not None:
            yield "sharding=" + print_sharding(sharding, i.shape, named=self.named)
        if attrs.get("control-predecessors"):
            kept = [self.predecessors.get(n, "") for n in attrs["control-predecessors"]]
            if any(kept):
                yield "control-predecessors={" + ", ".join(n for n in kept if n) + "}"
        metadata = self.written.get(i, i.metadata)
        if metadata is not None:
            text = print_metadata(metadata, attrs.get("metadata_extra", ""), self.frames)
            if text != "{}":
                yield f"metadata={text}"
        for key, kind in COMMON.items():
            if key in attrs and key not in kinds and kind in KINDS:
                yield f"{key}={KINDS[kind].show(attrs[key])}"

    def value(self, kind: str, value: Any) -> str:
        if kind == "computation":
            return self.computation_name(value)
        if kind == "computations":
            return "{" + ", ".join(self.computation_name(c) for c in value) + "}"
        return KINDS[kind].show(value)
