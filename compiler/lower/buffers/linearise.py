"""Linearise: a module's instructions as steps over buffers. Tuples, loops' carries and results become plain buffers.

Every value gets a buffer of its own, and copies stand wherever a value must be in a given place (loop carries,
branch results, the program's results). Assigning buffers later puts both ends of most copies in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardc.compiler.lower.buffers.in_place import in_place_pairs
from shardc.compiler.lower.fuse.fusion_rules import block_offset, is_alias, is_block
from shardc.compiler.lower.lowered import (
    AwaitStep,
    BranchStep,
    Buffer,
    BufferCopy,
    Collective,
    KernelStep,
    PredicateCheck,
    Step,
    WhileStep,
)
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair
from shardc.hlo.ir.host_memory.host_moves import is_host_move
from shardc.hlo.ir.host_memory.memory_kinds import is_host
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import Shape
from shardc.hlo.simplify.rules.control import branches_of
from shardc.hlo.transforms.structure import literal_digest

__all__ = [
    "ComputationSteps",
    "Leaves",
    "LinearSteps",
    "Linearisation",
    "Rule",
    "array_leaves",
    "linearise",
    "linearise_part",
    "linearise_with",
]

_ALIGNMENT = 64

#: Collectives as the canonical form leaves them; what a transport performs.
_COLLECTIVES = frozenset(
    {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all"}
)

#: Those whose start and done have opcodes of their own; of the others ``async-start`` and ``async-done`` are made.
_PAIRED = ("all-reduce", "all-gather", "collective-permute")

#: What no step can do; passes have removed the forms that have another way to say the same.
_REFUSED = (
    *("infeed", "outfeed", "send", "send-done", "recv", "recv-done", "collective-broadcast"),
    *("async-update", "call"),
)

Leaves = tuple[Buffer, ...]

#: Appends the steps of an instruction, whose operands are given as buffers, and returns the buffers of its value.
Rule = Callable[["Linearisation", Instruction, list[Leaves], list[Step]], Leaves]


def array_leaves(shape: Shape) -> tuple[Shape, ...]:
    """The arrays in a shape; tokens take no memory."""
    if shape.is_array:
        return (shape,)
    return tuple(s for s in shape.leaves() if s.is_array)


@dataclass(frozen=True, slots=True)
class LinearSteps:
    """The steps of a module, before buffers have places. ``aliases`` are (result, argument) pairs that may share."""

    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    parameters: Leaves
    results: Leaves
    constants: bytes
    aliases: tuple[tuple[int, int], ...]


def linearise(module: Module, alignment: int = 1) -> LinearSteps:
    """Walk the schedule of ``module`` (instruction order) and produce its steps; parts of what is only read are read
    where they lie if they begin at multiples of ``alignment`` bytes."""
    return linearise_with(module, Linearisation(readonly=_readonly(module), alignment=alignment))


def linearise_with(module: Module, walk: Linearisation) -> LinearSteps:
    """The same with the rules of ``walk``."""
    return _linear(walk, module.entry, lambda arguments, results: _aliases(module, arguments, results))


@dataclass(frozen=True, slots=True)
class ComputationSteps:
    """One computation's steps, in its order and by instruction: they are the same in every order."""

    linear: LinearSteps
    steps: Mapping[Instruction, Sequence[Step]]
    last: Sequence[Step]

    def reorder(self, order: Iterable[Instruction]) -> ComputationSteps:
        """The same computation in another order."""
        steps = [s for i in order if i in self.steps for s in self.steps[i]]
        return replace(self, linear=replace(self.linear, steps=(*steps, *self.last)))


def linearise_part(computation: Computation, *, carried: bool = False) -> ComputationSteps:
    """The steps of one computation, for judging its schedule: constants have no bytes.

    ``carried``: it is the body of a loop, whose results take the places of its arguments.
    """

    def in_place(arguments: Leaves, results: Leaves) -> tuple[tuple[int, int], ...]:
        return tuple((n, n) for n in range(len(results))) if carried else ()

    ends: dict[Instruction, int] = {}
    linear = _linear(Linearisation(pooled=False), computation, in_place, ends)
    steps: dict[Instruction, Sequence[Step]] = {}
    start = 0
    for i, end in ends.items():
        if end > start:
            steps[i] = linear.steps[start:end]
        start = end
    return ComputationSteps(linear, steps, linear.steps[start:])


def _linear(
    walk: Linearisation,
    entry: Computation,
    aliases_of: Callable[[Leaves, Leaves], tuple[tuple[int, int], ...]],
    ends: dict[Instruction, int] | None = None,
) -> LinearSteps:
    parameters: list[Leaves] = []
    for p in entry.parameters:
        first = sum(map(len, parameters))
        leaves = array_leaves(p.shape)
        parameters.append(tuple(walk.buffer(s, p.name, "argument", first + n) for n, s in enumerate(leaves)))
    flat = tuple(b for leaves in parameters for b in leaves)
    steps: list[Step] = []
    values = walk.computation(entry, parameters, steps, ends)
    shapes = array_leaves(entry.root.shape)
    results = tuple(walk.buffer(s, f"result{n}", "result", n) for n, s in enumerate(shapes))
    aliases = aliases_of(flat, results)
    shared = {flat[a]: r for r, a in aliases}
    walk.moves(
        [(v, r) for v, r in zip(values, results, strict=True)],
        lambda source, target: source in shared and results[shared[source]] is not target,
        steps,
    )
    return LinearSteps(tuple(steps), tuple(walk.buffers), flat, results, bytes(walk.pool), aliases)


def _readonly(module: Module) -> frozenset[int]:
    """Arguments that no result takes the memory of."""
    if any(p.shape.is_tuple for p in module.parameters):
        return frozenset()
    return frozenset(range(len(module.parameters))) - {a.parameter for a in module.aliases} - set(module.donors)


def _aliases(module: Module, parameters: Leaves, results: Leaves) -> tuple[tuple[int, int], ...]:
    """(result, argument) pairs of donated arguments: as the module says, then by equal shape in order."""
    if any(p.shape.is_tuple for p in module.parameters):
        return ()
    pairs: dict[int, int] = {}

    def fits(result: int, argument: int) -> bool:
        taken = result in pairs or argument in pairs.values()
        return not taken and results[result].shape.plain == parameters[argument].shape.plain

    for alias in module.aliases:
        output = alias.output[0] if alias.output else 0
        if len(alias.output) <= 1 and fits(output, alias.parameter):
            pairs[output] = alias.parameter
    for donor in sorted(module.donors):
        match = next((r for r in range(len(results)) if fits(r, donor)), None)
        if match is not None:
            pairs[match] = donor
    return tuple(sorted(pairs.items()))


class Linearisation:
    """State of one linearisation; unless ``pooled``, constants are places without bytes.

    Nothing writes to the ``readonly`` arguments; kernels take blocks of them at multiples of ``alignment`` bytes.
    ``rules`` say by opcode what becomes of an instruction, before those that there are.
    """

    def __init__(
        self,
        *,
        pooled: bool = True,
        readonly: frozenset[int] = frozenset(),
        alignment: int = 1,
        rules: Mapping[str, Rule] | None = None,
    ) -> None:
        self._readonly = readonly
        self._block_alignment = alignment
        self._rules: Mapping[str, Rule] = {**_RULES, **(rules or {})}
        self._pooling = pooled
        self.buffers: list[Buffer] = []
        self.pool = bytearray()
        self._pooled: dict[str, Buffer] = {}
        self._collectives = 0
        self._checks = 0
        self._started: dict[Instruction, Collective | KernelStep] = {}

    def buffer(
        self, shape: Shape, name: str, space: str = "arena", index: int = 0, offset: int = 0, *, host: bool = False
    ) -> Buffer:
        """Another buffer, in host memory if ``host`` or the shape says so."""
        made = Buffer(len(self.buffers), shape.plain, space, index, offset, name, host or is_host(shape))
        self.buffers.append(made)
        return made

    def computation(
        self, c: Computation, arguments: Sequence[Leaves], steps: list[Step], ends: dict[Instruction, int] | None = None
    ) -> Leaves:
        """Append the steps of ``c``; returns the root's leaves. ``ends`` gets the steps so far by instruction."""
        values: dict[Instruction, Leaves] = {}
        for i in c:
            if i.opcode == "parameter":
                values[i] = arguments[i.attrs["index"]]
            else:
                rule = self._rules.get(i.opcode, Linearisation.kernel)
                values[i] = rule(self, i, [values[o] for o in i.operands], steps)
            if ends is not None:
                ends[i] = len(steps)
        return values[c.root]

    def moves(
        self, pairs: Sequence[tuple[Buffer, Buffer]], clobbered: Callable[[Buffer, Buffer], bool], steps: list[Step]
    ) -> None:
        """All targets become their sources at once; sources that another move may overwrite are saved first."""
        pending: list[tuple[Buffer, Buffer]] = []
        for source, target in pairs:
            if source is target:
                continue
            if clobbered(source, target):
                saved = self.buffer(source.shape, source.name, host=source.host)
                steps.append(BufferCopy(source, saved))
                source = saved
            pending.append((source, target))
        steps.extend(BufferCopy(source, target) for source, target in pending)

    def new(self, i: Instruction) -> Leaves:
        """Buffers for a value."""
        return tuple(self.buffer(s, i.name) for s in array_leaves(i.shape))

    def kernel(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """One kernel that makes the value."""
        results = self.new(i)
        steps.append(self.make_kernel(i, operands, results))
        return results

    def make_kernel(self, i: Instruction, operands: list[Leaves], results: Leaves) -> KernelStep:
        """The kernel that makes ``results`` by ``i``."""
        return KernelStep(i, tuple(b for leaves in operands for b in leaves), results, in_place_pairs(i))

    def collective(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """A collective that is waited for."""
        results = self.new(i)
        flat = tuple(b for leaves in operands for b in leaves)
        steps.append(Collective(self._collectives, i, flat, results, in_place_pairs(i)))
        self._collectives += 1
        return results

    def _start(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        what = join_pair(i) if is_start(i) else i
        if is_host_move(what):
            return self.start_move(i, what, operands, steps)
        if what.opcode not in _COLLECTIVES:
            return self._refused(i, operands, steps)
        return self.start(i, what, operands, steps)

    def start(self, i: Instruction, what: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """The value of the start ``i`` is read by the done alone, which knows the collective that was started."""
        results = self.collective(what, operands, steps)
        return self._begun(i, steps[-1], results)

    def start_move(self, i: Instruction, what: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """The value of ``i``, which starts the move ``what`` between host and device."""
        results = self.kernel(what, operands, steps)
        return self._begun(i, steps[-1], results)

    def _begun(self, start: Instruction, step: Step, results: Leaves) -> Leaves:
        assert isinstance(step, Collective | KernelStep)
        step.asynchronous = True
        self._started[start] = step
        return results

    def await_collective(self, start: Instruction, steps: list[Step]) -> Leaves | None:
        """Await what ``start`` began, a collective or a move; None where it began neither."""
        begun = self._started.get(start)
        if begun is None:
            return None
        steps.append(AwaitStep(begun))
        return begun.results

    def _done(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        values = self.await_collective(i.operands[0], steps) if is_done(i) else None
        return self._refused(i, operands, steps) if values is None else values

    def _custom_call(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        if i.attrs["custom_call_target"] == "AllocateBuffer":  # room, with anything in it
            return self.new(i)
        if not i.attrs["custom_call_target"].startswith("check."):
            return self.kernel(i, operands, steps)
        if len(operands) != 1 or len(operands[0]) != 1:
            raise UnsupportedError(
                "a check compares arrays instead of one predicate",
                where=i.place,
                fix="run the pass expand-checks first",
            )
        ((predicate,),) = operands
        steps.append(PredicateCheck(self._checks, i, predicate))
        self._checks += 1
        return ()

    def _constant(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        if not self._pooling:
            return tuple(self.buffer(s, "constant", "constant") for s in array_leaves(i.shape))
        return tuple(self._pool(literal) for literal in _literal_leaves(i.attrs["literal"]))

    def _pool(self, literal: Literal) -> Buffer:
        key = literal_digest(literal)
        if key not in self._pooled:
            self.pool.extend(bytes(-len(self.pool) % _ALIGNMENT))
            self._pooled[key] = self.buffer(literal.shape, "constant", "constant", 0, len(self.pool))
            # What is lowered to be judged needs only room for it; `require_computable` refuses to compile it.
            absent = bool(literal.left_out_at)
            self.pool.extend(bytes(literal.shape.nbytes) if absent else np.ascontiguousarray(literal.array).tobytes())
        return self._pooled[key]

    def _tuple(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        return tuple(b for leaves in operands for b in leaves)

    def _element(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        shapes = i.operands[0].shape.elements
        first = sum(len(array_leaves(s)) for s in shapes[: i.attrs["index"]])
        return operands[0][first : first + len(array_leaves(i.shape))]

    def _same(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        return operands[0] if is_alias(i) else self.kernel(i, operands, steps)

    def _slice(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """A block of what is only read is read where it lies."""
        ((whole,),) = operands
        lasting = whole.space == "constant" or (
            not whole.host and whole.space == "argument" and whole.index in self._readonly
        )
        if not (lasting and is_block(i)) or (whole.offset + block_offset(i)) % self._block_alignment:
            return self.kernel(i, operands, steps)
        return (self.buffer(i.shape, i.name, whole.space, whole.index, whole.offset + block_offset(i)),)

    def _token(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        return ()

    def _while(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """Elements that never change are read where they are; the others get a place that the loop updates."""
        body: Computation = i.attrs["body"]
        init = operands[0]
        carried = []
        for n, source in enumerate(init):
            if _source(body.root, n) == (body.parameters[0], n):
                carried.append(source)
            else:
                place = self.buffer(source.shape, i.name, host=source.host)
                steps.append(BufferCopy(source, place))
                carried.append(place)
        condition_steps: list[Step] = []
        body_steps: list[Step] = []
        (predicate,) = self.computation(i.attrs["condition"], [tuple(carried)], condition_steps)
        results = self.computation(body, [tuple(carried)], body_steps)
        targets = [(r, c) for r, c, s in zip(results, carried, init, strict=True) if c is not s]
        places = {c for _, c in targets}
        self.moves(targets, lambda source, target: source in places, body_steps)
        steps.append(WhileStep(i, tuple(condition_steps), predicate, tuple(body_steps)))
        return tuple(carried)

    def _conditional(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        results = self.new(i)
        branches: list[Sequence[Step]] = []
        for number, c in enumerate(branches_of(i)):
            inner: list[Step] = []
            values = self.computation(c, [operands[1 + number]], inner)
            inner.extend(BufferCopy(v, r) for v, r in zip(values, results, strict=True))
            branches.append(tuple(inner))
        (selector,) = operands[0]
        steps.append(BranchStep(i, selector, tuple(branches)))
        return results

    def _refused(self, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        raise UnsupportedError(
            f"{i.opcode} cannot be compiled",
            where=f"%{i.name}" + (f" ({i.source})" if i.source else ""),
            fix="`shardc ops` lists the supported operations; please report programs that need this one",
        )


def _literal_leaves(literal: Literal) -> list[Literal]:
    if literal.elements is None:
        return [literal]
    return [leaf for e in literal.elements for leaf in _literal_leaves(e)]


def _source(i: Instruction, leaf: int) -> tuple[Instruction, int]:
    """Where leaf number ``leaf`` of ``i`` comes from, through tuples and their elements."""
    while True:
        if i.opcode == "tuple":
            for o in i.operands:
                count = len(array_leaves(o.shape))
                if leaf < count:
                    i = o
                    break
                leaf -= count
        elif i.opcode == "get-tuple-element":
            shapes = i.operands[0].shape.elements
            leaf += sum(len(array_leaves(s)) for s in shapes[: i.attrs["index"]])
            i = i.operands[0]
        else:
            return i, leaf


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(sorted(_COLLECTIVES), Linearisation.collective),
    **dict.fromkeys(_REFUSED, Linearisation._refused),
    **dict.fromkeys((*(f"{o}-start" for o in _PAIRED), "async-start"), Linearisation._start),
    **dict.fromkeys((*(f"{o}-done" for o in _PAIRED), "async-done"), Linearisation._done),
    "constant": Linearisation._constant,
    "tuple": Linearisation._tuple,
    "get-tuple-element": Linearisation._element,
    "reshape": Linearisation._same,
    "bitcast": Linearisation._same,
    "slice": Linearisation._slice,
    "after-all": Linearisation._token,
    "custom-call": Linearisation._custom_call,
    "while": Linearisation._while,
    "conditional": Linearisation._conditional,
}
