"""Reading the instructions of one computation."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import ParseError, ShardcError, UnsupportedError
from shardc.hlo.ir.infer import infer_shape
from shardc.hlo.ir.ir import NO_ATTRS, Computation, Instruction, Metadata
from shardc.hlo.ir.opset import OPS, Op
from shardc.hlo.ir.sharding import AnySharding
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.text.attributes import COMMON, read_attribute
from shardc.hlo.text.literals import read_literal
from shardc.hlo.text.metadata import MetadataReader
from shardc.hlo.text.names import KEYWORDS, identifier, is_legal
from shardc.hlo.text.notations.tiles import parse_sharding
from shardc.hlo.text.rules import RULES, SPELLINGS, complete
from shardc.hlo.text.scanner import Scanner, move_error
from shardc.hlo.text.shapes import try_shape
from shardc.hlo.text.vocabulary import check_vocabulary
from shardc.hlo.text.wrappers import (
    START_ATTRIBUTES,
    check_start_shape,
    check_wrapper,
    split_spelling,
    wrap,
    wrapped_instruction,
)

__all__ = ["OPCODE_SPELLING", "ComputationReader", "TextContext", "check_name"]

#: Opcodes whose name in HLO text differs from the op set's.
OPCODE_SPELLING: Mapping[str, str] = MappingProxyType({"optimization-barrier": "opt-barrier"})
_OPCODE_OF_TEXT = {text: opcode for opcode, text in OPCODE_SPELLING.items()}

_NAME = r"[A-Za-z_][\w.\-]*"
#: A name without a % in front has a space before the equals sign; ``name=`` is an attribute.
_START = re.compile(rf"\s*(ROOT\s+)?(?:%(?={_NAME}\s*=)|(?={_NAME}\s+=))({_NAME})\s*=(?!=)")
_END = re.compile(r"\s*\}")
_OPCODE = re.compile(r"\s*([a-z][a-z0-9\-]*)\s*\(")
_PLAIN_OPERANDS = re.compile(rf"\s*((?:%?{_NAME}\s*,\s*)*%?{_NAME})\s*,?\s*\)")
_OPERAND = re.compile(rf"\s*%?({_NAME})((?:#\d+)*)\s*(?=[,)])")
_ATTRIBUTE = re.compile(r"\s*,\s*([A-Za-z_][\w\-]*)=")
_REFERENCE = re.compile(rf"\s*%?({_NAME})")
_INTEGER = re.compile(r"\s*(\d+)\s*\)")
_NO_MORE = re.compile(r"\s*\)")
#: Opcodes whose result's shape HLO text has to give, though it often follows from the operands.
_SHAPE_IS_WRITTEN = frozenset(
    f"""
    {" ".join(o for o, row in OPS.items() if row.family == "collective" and not o.endswith("-id"))}
    async-start async-update async-done bitcast bitcast-convert convert copy-start copy-done custom-call dynamic-reshape
    dynamic-slice dynamic-update-slice fusion infeed iota optimization-barrier outfeed reduce-precision reshape rng
    rng-bit-generator rng-get-and-update-state slice stochastic-convert
    """.split()
)
#: Kinds of attributes whose words or form are checked.
_CHECKED = frozenset({"enum", "enums", "raw"})


@dataclass(slots=True)
class InstructionHead:
    """The head of an instruction: its name, shape (None: to be inferred) and opcode as spelled, and where they are."""

    name: str
    at: int
    shape: Shape | None
    spelled: str
    op_at: int


@dataclass(slots=True)
class TextContext:
    """What the computations of one text share: those defined so far, by name, and how values are read."""

    metadata: MetadataReader
    computations: dict[str, Computation] = field(default_factory=dict)


class ComputationReader:
    """Reads ``{ ... }`` into a `Computation`."""

    def __init__(self, scanner: Scanner, context: TextContext, name: str) -> None:
        self.scanner = scanner
        self.context = context
        self.computations = context.computations
        self.name = name
        self.instructions: list[Instruction] = []
        self.by_name: dict[str, Instruction] = {}
        self.places: dict[str, int] = {}
        self.root: Instruction | None = None
        self.invents_operands = False

    # --- computations ---------------------------------------------------------------------------------------

    def read_body(self) -> Computation:
        scanner = self.scanner
        scanner.expect("{", f"at the start of computation {self.name!r}")
        begin = scanner.pos
        while scanner.match(_END) is None:
            found = scanner.match(_START)
            if found is None:
                scanner.skip_space()
                wanted = "an instruction such as 'name = f32[2] add(a, b)' or '}'"
                raise scanner.error(f"expected {wanted} in computation {self.name!r}, found {scanner.excerpt()}")
            if found.group(1) and self.root is not None:
                raise scanner.error(f"computation {self.name!r} has more than one ROOT", at=found.start(1))
            instruction = self._read_instruction(found.group(2), found.start(2))
            if found.group(1):
                self.root = instruction
        if not self.instructions:
            raise scanner.error(f"computation {self.name!r} is empty", at=begin)
        return self._finish(begin)

    def read_single(self) -> Computation:
        """One instruction alone; its operands become parameters of the shapes written in front of them."""
        scanner = self.scanner
        self.invents_operands = True
        begin = scanner.pos
        found = scanner.match(_START)
        name, at = (found.group(2), found.start(2)) if found is not None else ("root", begin)
        if found is None and try_shape(Scanner(scanner.text, scanner.file, begin)) is None:
            scanner.skip_space()
            what = f"expected HloModule, a computation or an instruction, found {scanner.excerpt()}"
            raise scanner.error(what, fix="HLO text begins with HloModule, and StableHLO text with module or #loc")
        self.root = self._read_instruction(name, at)
        return self._finish(begin)

    def _finish(self, begin: int) -> Computation:
        parameters = sorted(int(i.attrs["index"]) for i in self.instructions if i.opcode == "parameter")
        if parameters != list(range(len(parameters))):
            raise self.scanner.error(
                f"computation {self.name!r} has the parameter numbers {', '.join(map(str, parameters))}",
                at=begin,
                fix="number them 0, 1, 2, ... without gaps",
            )
        return Computation(self.name, self.instructions, self.root or self.instructions[-1])

    def _register(self, computation: Computation) -> Computation:
        """Add a computation that has no name in the text."""
        name, number = computation.name, 0
        while computation.name in self.computations:
            number += 1
            computation.name = f"{name}.{number}"
        self.computations[computation.name] = computation
        return computation

    def _read_inline(self, role: str) -> Computation:
        """A computation written in place of its name."""
        name = f"{self.name}.{role}"
        return self._register(ComputationReader(self.scanner, self.context, name).read_body())

    # --- one instruction ------------------------------------------------------------------------------------

    def _read_instruction(self, name: str, at: int) -> Instruction:
        scanner = self.scanner
        check_name(scanner, name, at)
        if not is_legal(name):
            raise scanner.error(
                f"{name!r} cannot be the name of an instruction", at=at, fix=f"call it {identifier(name)}"
            )
        if name in self.by_name:
            raise scanner.error(
                f"instruction {name!r} is defined twice in computation {self.name!r}",
                at=at,
                fix=f"the first is at line {scanner.location(self.places[name]).line}",
            )
        shape = try_shape(scanner)
        found = scanner.match(_OPCODE)
        if found is None:
            scanner.skip_space()
            wanted = "a shape and an opcode and '('" if shape is None else "an opcode and '('"
            raise scanner.error(f"expected {wanted}, found {scanner.excerpt()}")
        return self._read_operation(InstructionHead(name, at, shape, found.group(1), found.start(1)))

    def _read_operation(self, head: InstructionHead, *, is_nested: bool = False) -> Instruction:
        spelled = head.spelled
        opcode = _OPCODE_OF_TEXT.get(spelled, spelled)
        row = OPS.get(opcode)
        if row is None or (opcode is spelled and opcode in OPCODE_SPELLING):
            short = split_spelling(spelled)
            if short is None:
                raise _unknown_opcode(self.scanner, spelled, head.op_at)
            return self._read_short_wrapper(head, *short)
        attrs: dict[str, Any] = {}
        operands = self._operands(opcode, head, attrs)
        if row.arity is not None and len(operands) != row.arity:
            raise self.scanner.error(f"{opcode} takes {row.arity} operands, found {len(operands)}", at=head.op_at)
        kinds = row.attributes if opcode not in SPELLINGS else {**row.attributes, **SPELLINGS[opcode]}
        fields = {} if is_nested else self._read_attributes(opcode, kinds, attrs, head.shape, head.name)
        head.shape = complete(opcode, operands, attrs, head.shape)
        self._require(row, opcode, attrs, head)
        rule = RULES.get(opcode)
        if rule is not None and (wrong := rule(operands, attrs, head.shape)) is not None:
            raise self.scanner.error(f"{opcode} %{head.name}: {wrong}", at=head.op_at)
        if opcode.startswith("async-") and (wrong := check_wrapper(opcode, head.shape, operands, attrs)) is not None:
            raise self.scanner.error(wrong, at=head.op_at)
        return self._add(head, opcode, operands, attrs, fields)

    def _require(self, row: Op, spelled: str, attrs: Mapping[str, Any], head: InstructionHead) -> None:
        for key in row.required:
            if key not in attrs:
                raise self.scanner.error(f"{spelled} %{head.name} lacks the attribute {key}", at=head.op_at)

    def _read_short_wrapper(self, head: InstructionHead, wrapped: Op, step: str) -> Instruction:
        """An asynchronous wrapper in its short spelling; the position is behind its ``(``."""
        scanner, spelled = self.scanner, head.spelled
        if head.shape is None:
            raise scanner.error(f"{spelled} needs its shape", at=head.op_at)
        operands = self._read_operands()
        attrs: dict[str, Any] = {}
        if step == "start":
            if (wrong := check_start_shape(head.shape)) is not None:
                raise scanner.error(wrong, at=head.op_at)
            kinds = {**wrapped.attributes, **START_ATTRIBUTES}
            fields = self._read_attributes(spelled, kinds, attrs, head.shape)
            outer = {k: attrs.pop(k) for k in START_ATTRIBUTES if k in attrs}
            self._require(wrapped, spelled, attrs, head)
            outer["calls"] = self._register(wrap(wrapped, head.shape.elements[1], operands, attrs))
            return self._add(head, "async-start", operands, outer, fields)
        opcode = f"async-{step}"
        fields = self._read_attributes(spelled, OPS[opcode].attributes, attrs, head.shape)
        inner = wrapped_instruction(operands)
        if inner is None or inner.opcode != wrapped.opcode:
            found = "nothing" if inner is None else inner.opcode
            raise scanner.error(
                f"{spelled} must belong to a {wrapped.opcode}-start, but its operand is {found}", at=head.op_at
            )
        return self._add(head, opcode, operands, attrs, fields)

    def _add(
        self,
        head: InstructionHead,
        opcode: str,
        operands: tuple[Instruction, ...],
        attrs: dict[str, Any],
        fields: Mapping[str, Any] = NO_ATTRS,
    ) -> Instruction:
        """Make the instruction and add it to the computation."""
        shape = head.shape
        if shape is None:
            shape = self._infer_shape(opcode, operands, attrs, head.op_at)
        sharding: AnySharding = fields.get("sharding")
        metadata: Metadata | None = self.context.metadata.add_place(fields.get("metadata"), self.scanner, head.at)
        if opcode == "rng-bit-generator" and shape.is_array and operands:
            operands = (self._add_generator(shape, operands, attrs, head.name, metadata),)
            opcode, attrs = "get-tuple-element", {"index": 1}
        instruction = Instruction(
            opcode, shape, operands, attrs or NO_ATTRS, name=head.name, sharding=sharding, metadata=metadata
        )
        self.instructions.append(instruction)
        self.by_name[head.name] = instruction
        self.places[head.name] = head.at
        return instruction

    def _add_generator(
        self,
        bits: Shape,
        operands: tuple[Instruction, ...],
        attrs: dict[str, Any],
        name: str,
        metadata: Metadata | None,
    ) -> Instruction:
        """What gives the state after ``bits`` as well, where the text asks for the bits alone."""
        shape = tuple_shape(operands[0].shape.plain, bits)
        name = f"{name}.generator"
        while name in self.scanner.text:
            name += ".1"
        made = Instruction("rng-bit-generator", shape, operands, attrs, name=name, metadata=metadata)
        self.instructions.append(made)
        return made

    def _infer_shape(self, opcode: str, operands: tuple[Instruction, ...], attrs: dict[str, Any], at: int) -> Shape:
        if opcode in _SHAPE_IS_WRITTEN:
            spelled = OPCODE_SPELLING.get(opcode, opcode)
            raise self.scanner.error(f"{spelled} needs the shape of its result", at=at, fix="write the shape")
        try:
            shape = infer_shape(opcode, operands, attrs)
            if opcode == "tuple":
                return tuple_shape(*(o.shape for o in operands))
            if opcode == "get-tuple-element":
                index: int = attrs["index"]
                return operands[0].shape.elements[index]
            layout = operands[0].shape.layout if OPS[opcode].family == "elementwise" and operands else None
            if layout is not None and shape.dims == operands[0].shape.dims:
                return Shape(shape.dtype, shape.dims, layout=layout, dynamic=shape.dynamic)
            return shape
        except (ShardcError, LookupError, ValueError, TypeError) as e:
            what = e.what if isinstance(e, ShardcError) else f"{opcode} needs it"
            raise self.scanner.error(
                f"the result's shape is not written, and cannot be inferred: {what}", at=at, fix="write the shape"
            ) from None

    # --- operands -------------------------------------------------------------------------------------------

    def _operands(self, opcode: str, head: InstructionHead, attrs: dict[str, Any]) -> tuple[Instruction, ...]:
        scanner = self.scanner
        if opcode == "parameter":
            attrs["index"] = int(scanner.take(_INTEGER, "the parameter's number and ')'").group(1))
            return ()
        if opcode == "constant":
            if head.shape is None:
                raise scanner.error("a constant needs its shape", at=head.op_at, fix="write name = f32[] constant(1)")
            attrs["literal"] = read_literal(scanner, head.shape, head.name)
            scanner.expect(")", "after the constant")
            return ()
        return self._read_operands()

    def _read_operands(self) -> tuple[Instruction, ...]:
        """Operands up to and with the closing parenthesis."""
        scanner = self.scanner
        found = _PLAIN_OPERANDS.match(scanner.text, scanner.pos)
        if found is not None and not self.invents_operands:
            scanner.pos = found.end()
            names = found.group(1).replace("%", "").split(",")
            try:
                return tuple([self.by_name[n.strip()] for n in names])
            except KeyError:
                missing = next(n.strip() for n in names if n.strip() not in self.by_name)
                at = found.start(1) + found.group(1).index(missing)
                raise self._unknown_name(missing, at) from None
        return self._read_mixed_operands()

    def _read_mixed_operands(self) -> tuple[Instruction, ...]:
        """Operands with types in front, tuple elements ``%t#0``, or nested instructions."""
        scanner = self.scanner
        operands: list[Instruction] = []
        while scanner.match(_NO_MORE) is None:
            operands.append(self._read_operand())
            if scanner.match(_NO_MORE):
                break
            scanner.expect(",", "or ')' after an operand")
        return tuple(operands)

    def _read_operand(self) -> Instruction:
        scanner = self.scanner
        scanner.skip_space()
        at = scanner.pos
        declared = try_shape(scanner)
        found = scanner.match(_OPERAND)
        if found is None and declared is not None and self.invents_operands and scanner.peek() in (",", ")"):
            return self._invent(f"_{len(self.instructions)}", declared, at)
        if found is None:
            return self._read_nested_operand(declared, at)
        name, path = found.groups()
        operand = self.by_name.get(name)
        if operand is None:
            if not self.invents_operands:
                raise self._unknown_name(name, found.start(1))
            operand = self._invent(name, declared, found.start(1))
        for index in path.split("#")[1:]:
            operand = self._add_element(operand, int(index), at)
        if declared is not None and declared is not operand.shape and declared.plain != operand.shape.plain:
            raise scanner.error(f"operand %{name} is written as {declared}, but it has shape {operand.shape}", at=at)
        return operand

    def _read_nested_operand(self, shape: Shape | None, at: int) -> Instruction:
        scanner = self.scanner
        found = scanner.match(_OPCODE)
        if found is None:
            scanner.skip_space()
            raise scanner.error(f"expected an operand, found {scanner.excerpt()}", at=at)
        base = f"{found.group(1)}.anon"
        name, number = base, 0
        while name in self.by_name:
            number += 1
            name = f"{base}.{number}"
        return self._read_operation(InstructionHead(name, at, shape, found.group(1), found.start(1)), is_nested=True)

    def _invent(self, name: str, shape: Shape | None, at: int) -> Instruction:
        if shape is None:
            raise self.scanner.error(f"operand {name!r} of a single instruction needs its shape", at=at)
        index = sum(i.opcode == "parameter" for i in self.instructions)
        return self._add(InstructionHead(name, at, shape, "parameter", at), "parameter", (), {"index": index})

    def _add_element(self, base: Instruction, index: int, at: int) -> Instruction:
        if not base.shape.is_tuple or index >= len(base.shape.elements):
            raise self.scanner.error(f"%{base.name} of shape {base.shape} has no element {index}", at=at)
        name = f"{base.name}.element.{index}"
        known = self.by_name.get(name)
        if known is not None and known.operands == (base,) and known.attrs.get("index") == index:
            return known
        while name in self.by_name:
            name += ".1"
        head = InstructionHead(name, at, base.shape.elements[index], "get-tuple-element", at)
        return self._add(head, head.spelled, (base,), {"index": index})

    def _unknown_name(self, name: str, at: int) -> ShardcError:
        near = difflib.get_close_matches(name, self.by_name, n=3)
        fix = f"near names: {', '.join(near)}" if near else "define operands before their use"
        return self.scanner.error(f"instruction {name!r} does not exist in computation {self.name!r}", at=at, fix=fix)

    # --- attributes -----------------------------------------------------------------------------------------

    def _read_attributes(
        self, opcode: str, kinds: Mapping[str, str], attrs: dict[str, Any], shape: Shape | None, name: str = ""
    ) -> dict[str, Any]:
        """Read ``, key=value`` into ``attrs``; sharding and metadata, which are no attributes, are returned.

        ``shape`` and ``name`` are those of the instruction: for named-mesh shardings, and for errors about shardings.
        """
        scanner = self.scanner
        fields: dict[str, Any] = {}
        while (found := _ATTRIBUTE.match(scanner.text, scanner.pos)) is not None:
            key = found.group(1)
            kind = kinds.get(key) or COMMON.get(key)
            scanner.pos = found.end()
            if kind is None:
                allowed = ", ".join(sorted({*kinds, *COMMON}))
                raise scanner.error(
                    f"{opcode} has no attribute {key!r}", at=found.start(1), fix=f"its attributes are {allowed}"
                )
            if key in attrs or key in fields:
                raise scanner.error(f"attribute {key} is given twice", at=found.start(1))
            if kind == "computation":
                attrs[key] = self._read_callee(key)
            elif kind == "sharding":
                fields[key] = self._read_sharding(shape, name)
            elif kind == "metadata":
                fields[key], extra = self.context.metadata.read(scanner)
                if extra:
                    attrs["metadata_extra"] = extra
            elif kind == "computations":
                attrs[key] = self._read_callees(key)
            elif kind == "names":
                attrs[key] = self._read_names()
            else:
                value = read_attribute(scanner, kind)
                if kind in _CHECKED:
                    value = check_vocabulary(scanner, opcode, key, value, found.end(), is_text=kind == "raw")
                attrs[key] = value
        return fields

    def _read_sharding(self, shape: Shape | None, name: str) -> AnySharding:
        scanner = self.scanner
        scanner.skip_space()
        at = scanner.pos
        text = scanner.take_bracketed()
        try:
            # Only the named-mesh forms look at the shape.
            return _sharding_of_text(text, shape if "[" in text and "mesh" in text else None)
        except ParseError as e:
            what = f"sharding of %{name}: {e.what}" if name else e.what
            raise move_error(ParseError(what, where=e.where, fix=e.fix), scanner.location(at)) from None

    def _read_callee(self, role: str) -> Computation:
        scanner = self.scanner
        if scanner.peek() == "{":
            return self._read_inline(role)
        found = scanner.take(_REFERENCE, "the name of a computation")
        computation = self.computations.get(found.group(1))
        if computation is None:
            near = difflib.get_close_matches(found.group(1), self.computations, n=3)
            fix = f"near names: {', '.join(near)}" if near else "define computations before their calls"
            raise scanner.error(f"computation {found.group(1)!r} does not exist", at=found.start(1), fix=fix)
        return computation

    def _read_callees(self, role: str) -> tuple[Computation, ...]:
        scanner = self.scanner
        scanner.expect("{", "at the start of a list of computations")
        found: list[Computation] = []
        while not scanner.accept("}"):
            found.append(self._read_callee(role))
            if scanner.accept("}"):
                break
            scanner.expect(",", "between computations")
        return tuple(found)

    def _read_names(self) -> tuple[str, ...]:
        scanner = self.scanner
        scanner.expect("{", "at the start of a list of instructions")
        names: list[str] = []
        while True:
            found = scanner.take(_REFERENCE, "the name of an instruction")
            if found.group(1) not in self.by_name:
                raise self._unknown_name(found.group(1), found.start(1))
            names.append(found.group(1))
            if scanner.accept("}"):
                break
            scanner.expect(",", "between instructions")
        return tuple(names)


def check_name(scanner: Scanner, name: str, at: int) -> None:
    """A word of the language is a name only behind a %."""
    if name in KEYWORDS and scanner.text[at - 1 : at] != "%":
        raise scanner.error(f"{name!r} is a keyword of HLO", at=at, fix=f"write %{name}, or use another name")


@lru_cache(maxsize=16384)
def _sharding_of_text(text: str, shape: Shape | None) -> AnySharding:
    return parse_sharding(text, None, shape)


def _unknown_opcode(scanner: Scanner, opcode: str, at: int) -> UnsupportedError:
    near = difflib.get_close_matches(opcode, [OPCODE_SPELLING.get(o, o) for o in OPS], n=3)
    fix = f"near names: {', '.join(near)}" if near else "`shardc ops` lists all operations"
    return UnsupportedError(f"unknown opcode {opcode!r}", where=scanner.location(at), fix=fix)
