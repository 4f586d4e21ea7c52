"""HLO text -> `Module`: the text that XLA dumps, the short forms its tests use, and what our printer writes.

Accepted besides the full form: no ``HloModule`` line, a single computation without ``ENTRY``, a single instruction
whose operands become parameters; ``%`` and operand types present or not; result types left out where they can be
inferred; called computations written in place (``to_apply={...}``); nested instructions as operands; ``%t#0`` for a
tuple's element; ``call-start`` and the like for an asynchronous wrapper.
"""

from __future__ import annotations

import re
from typing import Any

from shardc.hlo.errors import ParseError, RunError
from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.host_memory.memory_kinds import is_host, on_host
from shardc.hlo.ir.ir import Computation, Module, names_of_one
from shardc.hlo.ir.sharding import Sharding, TileSharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.text.body import ComputationReader, TextContext, check_name
from shardc.hlo.text.header import Header, read_header
from shardc.hlo.text.metadata import MetadataReader, StackFrames, read_stack_frames
from shardc.hlo.text.scanner import STRING, Scanner, strip_comments, unquote
from shardc.hlo.text.shapes import read_shape
from shardc.hlo.transforms.host_values import HostValues
from shardc.hlo.transforms.results_on_host import put_results_on_host

__all__ = ["read_hlo"]

_HEAD = re.compile(r"\s*(ENTRY\s+)?%?([A-Za-z_][\w.\-]*)\s*(?=[({])")
_FIRST_HEAD = re.compile(r"\s*(?:ENTRY\b|%?[A-Za-z_][\w.\-]*\s*\{)")
_PARAMETER_NAME = re.compile(r"\s*(?:%[A-Za-z_][\w.\-]*|[A-Za-z_][\w.\-]*:?)")
_TAIL = re.compile(r"\s*,\s*(execution_thread|backend_config)\s*=\s*")


def read_hlo(text: str, file: str = "") -> Module:
    """The program that HLO text spells.

    ``file`` names the source in messages. Instruction names, order, layouts other than the default, metadata and
    every attribute are kept, so that printing and reading again give an equal module. Shapes are taken as written;
    `shardc.hlo.verify` checks them. Raises `ParseError` with line and column for text that is not HLO, and
    `UnsupportedError` for opcodes that shardc lacks. Constants whose value the text leaves out (``{...}``) stay so:
    the program can be looked at, partitioned and printed, not run.

    >>> read_hlo("ENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }").entry.root.opcode
    'negate'
    """
    if "\0" in text:
        raise ParseError("the input is not text: it contains zero bytes", where=file or None)
    text = text.removeprefix("\ufeff")
    scanner = Scanner(strip_comments(text, file), file, raw=text)
    try:
        return _ModuleReader(scanner).read()
    except RecursionError:
        raise scanner.error("the text is nested too deeply") from None
    except (ValueError, OverflowError, MemoryError) as e:  # numbers beyond all bounds
        if isinstance(e, MemoryError) and not str(e):  # NumPy says of what; this is the text itself
            what = "there is not enough memory to read the program"
            raise RunError(what, where=file or None, fix="give a smaller program, or raise the memory limit") from None
        raise scanner.error(f"malformed value: {str(e).split(';')[0]}") from None


class _ModuleReader:
    """Collects the computations of one text."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.context = TextContext(MetadataReader(None))
        self.computations = self.context.computations
        self.places: dict[str, int] = {}
        self.entry: Computation | None = None
        self.last: Computation | None = None
        self.tails: list[tuple[str, str]] = []
        self.frames: StackFrames | None = None

    def read(self) -> Module:
        scanner = self.scanner
        header = read_header(scanner)
        self.frames = read_stack_frames(scanner)
        self.context.metadata = MetadataReader(self.frames)
        if header is None and not scanner.at_end() and _FIRST_HEAD.match(scanner.text, scanner.pos) is None:
            return self._single_instruction()
        while not scanner.at_end():
            self._computation()
        entry = self.entry or self.last
        if entry is None:
            raise scanner.error(
                "there is no computation in this text", fix="an HLO module has at least ENTRY name { ... }"
            )
        return self._module(header or Header("module_" + entry.name), entry)

    def _single_instruction(self) -> Module:
        reader = ComputationReader(self.scanner, self.context, "entry")
        computation = reader.read_single()
        if not self.scanner.at_end():
            raise self.scanner.error(f"unexpected text after the instruction: {self.scanner.excerpt()}")
        return self._module(Header("instruction"), computation)

    def _computation(self) -> None:
        scanner = self.scanner
        found = scanner.take(_HEAD, "a computation such as 'name { ... }'")
        name, at = found.group(2), found.start(2)
        check_name(scanner, name, at)
        if name in self.computations:
            raise scanner.error(
                f"computation {name!r} is defined twice",
                at=at,
                fix=f"the first is at line {scanner.location(self.places[name]).line}",
            )
        declared = self._signature()
        reader = ComputationReader(scanner, self.context, name)
        computation = reader.read_body()
        if declared is not None and declared[0].plain != computation.root.shape.plain:
            raise scanner.error(
                f"computation {name!r} is declared to return {declared[0]}, but its root "
                f"%{computation.root.name} has shape {computation.root.shape}",
                at=declared[1],
            )
        self.computations[name] = computation
        self.places[name] = at
        self.last = computation
        if found.group(1):
            if self.entry is not None:
                raise scanner.error("there is more than one ENTRY computation", at=found.start(1))
            self.entry = computation
        self._tail(name)

    def _signature(self) -> tuple[Shape, int] | None:
        """Skip ``(x: f32[2], y: s32[]) -> f32[2]``; the declared result and its place."""
        scanner = self.scanner
        if not scanner.accept("("):
            return None
        if not scanner.accept(")"):
            while True:
                scanner.take(_PARAMETER_NAME, "'name:' of a parameter")
                read_shape(scanner)
                if scanner.accept(")"):
                    break
                scanner.expect(",", "between parameters")
        scanner.expect("->", "in a computation's signature")
        scanner.skip_space()
        at = scanner.pos
        return read_shape(scanner), at

    def _tail(self, name: str) -> None:
        scanner = self.scanner
        seen: set[str] = set()
        while (found := scanner.match(_TAIL)) is not None:
            if found.group(1) in seen:
                raise scanner.error(f"attribute {found.group(1)} is given twice", at=found.start(1))
            seen.add(found.group(1))
            if found.group(1) == "backend_config" and scanner.peek() == "{":
                value = scanner.take_bracketed()
            else:
                value = scanner.take(STRING, "a quoted string").group()
            if found.group(1) != "execution_thread" or unquote(value) != "main":
                self.tails.append((name, f"{found.group(1)}={value}"))

    def _module(self, header: Header, entry: Computation) -> Module:
        attrs: dict[str, Any] = dict(header.attrs)
        if self.frames is not None:
            attrs["stack_frames"] = self.frames
        computations = _callees_first(list(self.computations.values()), entry)
        kept = {c.name for c in computations}
        if tails := tuple(t for t in self.tails if t[0] in kept):
            attrs["computation_attributes"] = tails
        self._check_aliases(header, entry)
        whole = [p for p, index in header.donors if not index]
        if len(whole) != len(header.donors):
            attrs["buffer_donor"] = tuple(d for d in header.donors if d[1])
        if header.layout is not None and header.layout != (
            tuple(p.shape for p in entry.parameters),
            entry.root.shape,
        ):
            attrs["entry_computation_layout"] = header.layout
        module = Module(
            name=header.name,
            computations=computations,
            entry=entry,
            num_partitions=header.num_partitions,
            replica_count=header.replica_count,
            partitioned=header.num_partitions > 1 and _all_manual(entry),
            aliases=header.aliases,
            donors=tuple(whole),
            arg_names=_argument_names(entry),
            source_file=self.scanner.file,
            attrs=attrs,
        )
        return module if header.layout is None else _with_layout(module, header.layout)

    def _check_aliases(self, header: Header, entry: Computation) -> None:
        for alias in header.aliases:
            shape = entry.root.shape
            for k in alias.output:
                if k >= len(shape.elements):
                    what = f"input_output_alias: the result of shape {entry.root.shape} has no element {alias.output}"
                    raise self.scanner.error(what, at=0)
                shape = shape.elements[k]


def _with_layout(module: Module, layout: tuple[tuple[Shape, ...], Shape]) -> Module:
    """The module with arguments and results where ``layout`` has them, which is kept only if that does not say it."""
    made = _in_memories_of(module, *layout)
    if "entry_computation_layout" not in made.attrs:
        return made
    own = tuple(p.shape for p in made.entry.parameters), HostValues(made).shape(made.entry.root)
    kept = {k: v for k, v in made.attrs.items() if k != "entry_computation_layout" or layout != own}
    return made.with_(attrs=kept)


def _in_memories_of(module: Module, parameters: tuple[Shape, ...], result: Shape) -> Module:
    """The arguments and results that the header's layout has in host memory are there."""
    for p, shape in zip(module.parameters, parameters, strict=False):
        if is_host(shape) and p.shape.is_array:
            p.shape = on_host(p.shape)
    wanted = tuple(map(is_host, result.leaves()))
    return put_results_on_host(module, wanted) if any(wanted) else module


def _callees_first(computations: list[Computation], entry: Computation) -> tuple[Computation, ...]:
    """What ``entry`` needs, in the order of the text, which has callees first, as names must be known."""
    reachable = set(reachable_computations(entry))
    return (*(c for c in computations if c in reachable and c is not entry), entry)


_NAME_STACK = re.compile(r"\w+\([^()]*\)(/|$)")


def _argument_names(entry: Computation) -> tuple[str, ...]:
    """JAX names an entry parameter by its place in the arguments (``state['w1']``); empty when none has a name."""
    names = [p.metadata.op_name if p.metadata is not None else "" for p in entry.parameters]
    known = names_of_one(["" if _NAME_STACK.match(n) else n for n in names])
    return known if any(known) else ()


def _all_manual(entry: Computation) -> bool:
    """Every entry parameter and the result are per-device values."""

    def manual(sharding: Any) -> bool:
        if isinstance(sharding, tuple):
            return all(manual(s) for s in sharding)
        if isinstance(sharding, Sharding):
            return bool(sharding.mesh.axes) and len(sharding.manual) == len(sharding.mesh.axes)
        return isinstance(sharding, TileSharding) and sharding.kind == "manual"

    return all(manual(i.sharding) for i in (*entry.parameters, entry.root))
