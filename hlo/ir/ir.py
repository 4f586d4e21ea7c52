"""The program: `Module` of `Computation` of `Instruction`.

Instructions form a graph by reference, as in XLA: an operand *is* the instruction that makes it. They are never
changed once built; a pass makes new ones through a `Builder` and keeps what it does not touch. Identity
(``is``) distinguishes instructions; names are for people and are unique within a module when it is printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.sharding import AnySharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.units import count_text

__all__ = [
    "NO_ATTRS",
    "Alias",
    "Change",
    "Computation",
    "Instruction",
    "Metadata",
    "Module",
    "Origin",
    "Rebuilt",
    "called_computations",
    "flow_computations",
    "has_side_effect",
    "map_callees",
    "names_of_one",
    "rebuild_computation",
    "rebuild_computations",
    "rebuild_module",
    "users_of",
]

NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where an instruction comes from: JAX's name stack, source file and line, as HLO's ``metadata={...}``.

    ``place`` is where its text stands (``step.hlo:12:3``); it is not part of the program, so it is neither compared nor
    printed.
    """

    op_name: str = ""
    op_type: str = ""
    source_file: str = ""
    source_line: int = 0
    source_column: int = 0
    source_end_line: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    place: str = field(default="", compare=False)

    @property
    def source(self) -> str:
        """``file:line`` of the source, else of the program's text, or an empty string."""
        return f"{self.source_file}:{self.source_line}" if self.source_file else self.place.rpartition(":")[0]

    @property
    def places(self) -> tuple[str, ...]:
        """All that is known of where it stands, with columns: in the source, in the program's text."""
        source = ":".join(str(x) for x in (self.source_file, self.source_line, self.source_column) if x)
        return tuple(x for x in (source if self.source_file else "", self.place) if x)


@dataclass(frozen=True, slots=True)
class Origin:
    """Why the compiler inserted an instruction: carried from the partitioner to every report.

    ``reason`` is one sentence for people ("contracting dimension is sharded over model"), ``rule`` the decision
    that made it (``dot``, ``reshard``, ``result``), ``value`` the name of the global value it serves. ``causes`` are
    the decisions themselves, as the partitioner has them (`shardc.partitioner.strategy.cause`): one, or several once
    collectives are combined.
    """

    reason: str
    rule: str = ""
    value: str = ""
    axes: tuple[str, ...] = ()
    causes: tuple[object, ...] = field(default=(), compare=False, repr=False)


class Instruction:
    """One operation.

    ``opcode`` is HLO's (``"dot"``, ``"all-reduce"``; `shardc.hlo.ir.opset` lists them). ``attrs`` maps HLO's
    attribute names to immutable values (the op set says which and of what type); called computations are values
    in it too. ``sharding`` is what is known of the layout over the mesh. ``metadata`` and ``origin`` are
    provenance. Treat all of it as read-only.
    """

    __slots__ = ("attrs", "metadata", "name", "opcode", "operands", "origin", "shape", "sharding")

    def __init__(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Instruction] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        *,
        name: str = "",
        sharding: AnySharding = None,
        metadata: Metadata | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.opcode = opcode
        self.shape = shape
        self.operands: tuple[Instruction, ...] = tuple(operands)
        self.attrs: Mapping[str, Any] = attrs
        self.name = name or opcode
        self.sharding = sharding
        self.metadata = metadata
        self.origin = origin

    def replace(self, **changes: Any) -> Instruction:
        """A copy with some fields changed, for example ``i.replace(operands=new)``."""
        return Instruction(
            changes.get("opcode", self.opcode),
            changes.get("shape", self.shape),
            changes.get("operands", self.operands),
            changes.get("attrs", self.attrs),
            name=changes.get("name", self.name),
            sharding=changes.get("sharding", self.sharding),
            metadata=changes.get("metadata", self.metadata),
            origin=changes.get("origin", self.origin),
        )

    @property
    def axis_sharding(self) -> Sharding:
        """The axis-based sharding of an array-shaped instruction, after propagation."""
        if not isinstance(self.sharding, Sharding):
            raise self._not_propagated()
        return self.sharding

    def leaf_shardings(self) -> tuple[Sharding, ...]:
        """The axis-based shardings of all leaves of the shape, after propagation."""
        leaves = self.sharding if isinstance(self.sharding, tuple) else (self.sharding,)
        if not all(isinstance(s, Sharding) for s in leaves):
            raise self._not_propagated()
        return leaves  # type: ignore[return-value]

    def _not_propagated(self) -> UnsupportedError:
        what = f"%{self.name} has no sharding over the axes of a mesh"
        return UnsupportedError(what, where=self.source or None, fix="propagate shardings through the program first")

    @property
    def source(self) -> str:
        return self.metadata.source if self.metadata else ""

    @property
    def place(self) -> str:
        """The name and the source line, for errors."""
        return f"%{self.name}, {self.source}" if self.source else f"%{self.name}"

    def __repr__(self) -> str:
        args = ", ".join("%" + o.name for o in self.operands)
        return f"%{self.name} = {self.shape} {self.opcode}({args})"


def called_computations(instruction: Instruction) -> Iterator[tuple[str, Computation]]:
    """Pairs (role, computation) that an instruction calls; role is HLO's attribute name."""
    for key, value in instruction.attrs.items():
        if isinstance(value, Computation):
            yield key, value
        elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
            for c in value:
                yield key, c


#: Opcodes whose operands flow into the computations they call, and whose results flow out of them.
_FLOW_OPS = frozenset({"call", "while", "conditional", "fusion"})


def flow_computations(instruction: Instruction) -> list[Computation]:
    """The computations that values flow into; reducers and comparators are not among them."""
    return [c for _, c in called_computations(instruction)] if instruction.opcode in _FLOW_OPS else []


def map_callees(attrs: Mapping[str, Any], change: Callable[[Computation], Computation]) -> Mapping[str, Any]:
    """``attrs`` with ``change`` applied to each called computation; the same object when none becomes another."""
    changed: dict[str, Any] = {}
    for key, value in attrs.items():
        if isinstance(value, Computation):
            new: Any = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
            callees = tuple(map(change, value))
            new = value if all(a is b for a, b in zip(callees, value, strict=True)) else callees
        else:
            continue
        if new is not value:
            changed[key] = new
    return {**attrs, **changed} if changed else attrs


#: Opcodes that run the computations they call as programs, side effects and all.
_RUNS_COMPUTATIONS = frozenset({"call", "while", "conditional", "async-start"})


#: What JAX's call says that brings a value back to the device: where it is read first, and not where it is written.
_BACK = ("_xla_buffer_placement", "device")


def has_side_effect(instruction: Instruction) -> bool:
    """Whether this instruction must stay although nobody reads its value."""
    if instruction.opcode == "custom-call":
        a = instruction.attrs
        if a["custom_call_target"] == "annotate_device_placement" and _BACK in a.get("frontend_attributes", ()):
            return False
        return bool(a.get("custom_call_has_side_effect", False)) or a["custom_call_target"].startswith("check.")
    if instruction.opcode in _RUNS_COMPUTATIONS:
        return any(has_side_effect(i) for _, c in called_computations(instruction) for i in c)
    return OPS[instruction.opcode].side_effect


class Computation:
    """A function: instructions in a topological order (operands first), and the root whose value it returns."""

    __slots__ = ("instructions", "name", "parameters", "root")

    def __init__(self, name: str, instructions: Iterable[Instruction], root: Instruction) -> None:
        self.name = name
        self.instructions: tuple[Instruction, ...] = tuple(instructions)
        self.root = root
        found = [i for i in self.instructions if i.opcode == "parameter"]
        self.parameters: tuple[Instruction, ...] = tuple(sorted(found, key=lambda i: int(i.attrs["index"])))

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __repr__(self) -> str:
        return f"Computation({self.name}, {count_text(len(self.instructions), 'instruction')})"


@dataclass(frozen=True, slots=True)
class Alias:
    """Result ``output`` may reuse the memory of parameter ``parameter`` (HLO's input_output_alias).

    Indices are paths into tuples: ``output=(2,)`` is element 2 of the result tuple, ``()`` a non-tuple result.
    """

    output: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...] = ()
    must: bool = False


@dataclass(frozen=True, slots=True)
class Module:
    """A program.

    ``computations`` come callees first and end with ``entry``. ``arg_names`` and ``result_names`` are the
    people's names of entry parameters and flattened results (``state['w1']``), empty strings where unknown.
    ``mesh`` is the device mesh of an annotated program; None before one is known. ``partitioned`` tells a
    per-device program (shapes are local) from a global one. ``donors`` are parameters whose memory may be
    reused for any result. ``uneven_interface`` lets arguments and results that nobody lays out end in a shorter
    shard, as arrays of NumPy programs may. ``attrs`` keeps header attributes that only the printer needs.
    """

    name: str
    computations: tuple[Computation, ...]
    entry: Computation
    mesh: Mesh | None = None
    num_partitions: int = 1
    replica_count: int = 1
    partitioned: bool = False
    arg_names: tuple[str, ...] = ()
    result_names: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()
    donors: tuple[int, ...] = ()
    uneven_interface: bool = False
    source_file: str = ""
    attrs: Mapping[str, Any] = field(default_factory=lambda: NO_ATTRS)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        return self.entry.parameters

    @property
    def results(self) -> tuple[Shape, ...]:
        """Flattened result shapes: the leaves of the entry root."""
        return tuple(self.entry.root.shape.leaves())

    @property
    def argument_names(self) -> tuple[str, ...]:
        """What to call each parameter: people's name for it, else ``arg0...`` by position; the instructions' own names
        where people named none."""
        given = self.arg_names
        if not given:
            return tuple(p.name for p in self.parameters)
        return tuple((given[n] if n < len(given) else "") or f"arg{n}" for n in range(len(self.parameters)))

    def instructions(self) -> Iterator[Instruction]:
        """All instructions of all computations, callees first."""
        for c in self.computations:
            yield from c.instructions

    def with_(self, **changes: Any) -> Module:
        """A copy with some fields changed."""
        return replace(self, **changes)


def names_of_one(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` without those that several have, which say nothing: TensorFlow calls every argument ``XLA_Args``."""
    count = Counter(names)
    return tuple(name if count[name] == 1 else "" for name in names)


def users_of(computation: Computation) -> dict[Instruction, list[Instruction]]:
    """Each instruction's users in program order, one entry per operand slot that uses it."""
    users: dict[Instruction, list[Instruction]] = {i: [] for i in computation}
    for i in computation:
        for o in i.operands:
            users[o].append(i)
    return users


class Rebuilt(dict[Computation, Computation]):
    """New computations by those before them, as they are made; ``moved`` are those that became others.

    A rebuilt computation asks only for the latter, of which there may be none among thousands.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved: dict[Computation, Computation] = {}

    def __setitem__(self, before: Computation, after: Computation) -> None:
        super().__setitem__(before, after)
        if after is not before:
            self.moved[before] = after


Change = Callable[[Instruction, tuple[Instruction, ...]], Instruction | None]


def rebuild_computation(
    computation: Computation,
    change: Change | None,
    called: Mapping[Computation, Computation] | None = None,
    only: Set[str] | None = None,
    inlined: Mapping[Instruction, Sequence[Instruction]] | None = None,
) -> Computation:
    """Map every instruction, operands first; returns the same object when nothing changed.

    ``change(old, new_operands)`` returns the replacement (it may be an already built instruction), or None to keep
    ``old`` with its new operands, which are ``old.operands`` itself where none changed; it is asked about the opcodes
    ``only`` if these are given. ``called`` maps computations that were rebuilt before; what calls one of them calls the
    new one, also in a replacement. Instructions that a replacement needs in addition are found through its operands;
    those that become dead are dropped, except parameters and what has side effects, which keeps its order: ``inlined``
    has what else has some in a replacement, by what it replaces, and may be filled by ``change``.
    """
    if isinstance(called, Rebuilt):
        moved: Mapping[Computation, Computation] = called.moved
    else:
        moved = {k: v for k, v in called.items() if k is not v} if called else {}
    if not moved and (change is None or (only is not None and all(i.opcode not in only for i in computation))):
        return computation

    def follow(callee: Computation) -> Computation:
        return moved.get(callee, callee)

    new: dict[Instruction, Instruction] = {}
    changed = new.keys()
    for old in computation:
        operands = old.operands
        if not changed.isdisjoint(operands):
            operands = tuple([new.get(o, o) for o in operands])
        replacement = None
        if change is not None and (only is None or old.opcode in only):
            replacement = change(old, operands)
        if replacement is None:
            attrs = map_callees(old.attrs, follow) if moved and old.attrs else old.attrs
            if operands is old.operands and attrs is old.attrs:
                continue
            replacement = old.replace(operands=operands, attrs=attrs)
        elif moved and replacement.attrs:
            attrs = map_callees(replacement.attrs, follow)
            replacement = replacement if attrs is replacement.attrs else replacement.replace(attrs=attrs)
        if replacement is not old:
            new[old] = replacement
    if not new:
        return computation
    root = new.get(computation.root, computation.root)
    keep: list[Instruction] = []
    for i in computation:
        keep += inlined.get(i, ()) if inlined else ()
        if i.opcode == "parameter" or has_side_effect(i):
            keep.append(new.get(i, i))
    return Computation(computation.name, topological([*keep, root]), root)


def topological(roots: Iterable[Instruction]) -> list[Instruction]:
    """Everything that ``roots`` need, operands first, each once, in a deterministic order."""
    order: list[Instruction] = []
    done: set[Instruction] = set()
    for root in roots:
        stack: list[tuple[Instruction, int]] = [(root, 0)]
        while stack:
            node, position = stack.pop()
            if node in done:
                continue
            if position < len(node.operands):
                stack.append((node, position + 1))
                if node.operands[position] not in done:
                    stack.append((node.operands[position], 0))
            else:
                done.add(node)
                order.append(node)
    return order


def rebuild_module(module: Module, change: Change, only: Set[str] | None = None) -> Module:
    """`rebuild_computation` over all computations, callees first, calls redirected to the new ones."""
    return rebuild_computations(module, lambda c, called: rebuild_computation(c, change, called, only))


def rebuild_computations(
    module: Module, rebuilt: Callable[[Computation, Mapping[Computation, Computation]], Computation]
) -> Module:
    """``rebuilt(computation, called)`` over all computations, callees first; the same module when nothing changed.

    ``called`` has the new computations by those before them: what ``rebuilt`` gives must call these.
    """
    called = Rebuilt()
    for c in module.computations:
        called[c] = rebuilt(c, called)
    if not called.moved:
        return module
    return module.with_(computations=tuple(called.values()), entry=called[module.entry])
