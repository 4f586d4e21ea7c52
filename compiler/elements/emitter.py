"""Code for elements: answers `Elements` with LLVM values.

Loop variables are bound to loop counters, one of them at most to vector lanes (``lane``: counter + 0, 1, 2, ...).
Addresses that advance by one per lane are vector loads, those that do not change are scalar loads, others gathers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import (
    Expr,
    InRange,
    LoadedIndex,
    LoopVar,
    Mask,
    Quotient,
    Remainder,
    Rest,
    Var,
    VarSource,
)
from shardc.compiler.elements.arithmetic.convert import as_index, convert
from shardc.compiler.elements.arithmetic.elementwise import combine
from shardc.compiler.elements.arithmetic.registers import register_type
from shardc.compiler.elements.elements import Answer, ElementRule, Elements, Index, bases
from shardc.compiler.elements.frames import Frame, Val, apply, deepest
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DTYPES, DType, Shape
from shardc.native.math.vector import I8, I32, I64, constant, shuffle, splat, with_lanes, zero

__all__ = ["Binding", "ElementEmitter", "Known", "ReadAhead"]

#: The element of a value at an index, if there is a shorter way to it than by its rule.
Known = Callable[[Index, Mask], Answer]


class ReadAhead(Protocol):
    """Elements that have been read before they are asked for."""

    def value(self, leaf: Instruction, offset: Expr, dtype: DType) -> Val | None:
        """The element (or vector) at ``offset`` of ``leaf``; None for a read that it knows nothing of."""
        ...


@dataclass(frozen=True, slots=True)
class Binding:
    """What a variable is at run time; with ``lanes`` > 1 a loop counter that stands for consecutive lanes.

    ``whole``: the counter is a multiple of ``lanes``.
    """

    value: Val
    lanes: int = 1
    whole: bool = False


class ElementEmitter(Elements):
    """See the module docstring. ``pointers`` tells where the leaves lie.

    ``known`` values are asked first: what has been reduced already, or lies in memory for some indices.
    """

    def __init__(
        self,
        function: ir.Function,
        pointers: Mapping[Instruction, ir.Value],
        rules: Mapping[str, ElementRule],
        vector_bits: int,
    ) -> None:
        super().__init__(VarSource(), pointers, rules)
        self.pointers = pointers
        self.vector_bits = vector_bits
        self._slots = ir.IRBuilder(function.append_basic_block("entry"))
        self._body = function.append_basic_block("body")
        self.entry = Frame(None, ir.IRBuilder(self._body))
        self.bindings: dict[Var, Binding] = {}
        self._sums: dict[object, Any] = {}
        self._written: dict[Instruction, Frame] = {}
        self.known: dict[Instruction, Known] = {}
        #: Folds that have been done already for the index that is being emitted.
        self.folded: dict[Instruction, Callable[[], list[Val]]] = {}
        #: While a transposing map emits a tile: what it has read.
        self.tile: ReadAhead | None = None

    def finish(self) -> None:
        """End the function."""
        self._slots.branch(self._body)
        self.entry.builder.ret_void()

    def with_leaf(self, instruction: Instruction, pointer: ir.Value, frame: Frame | None = None) -> Self:
        """This emitter, with one more value in memory, written in ``frame`` (default: before everything else)."""
        self.pointers = {**self.pointers, instruction: pointer}
        self._written[instruction] = frame or self.entry
        self.leaves = frozenset(self.pointers)
        return self

    def slot(self, t: ir.Type) -> ir.Value:
        """A stack slot, which becomes a register."""
        return self._slots.alloca(t)

    # Answers.

    def usable(self, found: Answer) -> bool:
        if isinstance(found, list):
            return all(v.frame.open for v in found)
        return bool(found.frame.open)

    def elementwise(self, instruction: Instruction, operands: Sequence[Val], wide: bool = False) -> Val:
        def emit(b: ir.IRBuilder, *parts: Any) -> tuple[ir.Value, ...]:
            return combine(b, instruction, parts, wide=wide)

        return apply(emit, operands, self.entry)

    def compute(self, emit: Callable[..., Any], operands: Sequence[Val]) -> Val:
        return apply(emit, operands, self.entry)

    def choose(self, conditions: Sequence[InRange], yes: Val, no: Val) -> Val:
        holds = self.mask(tuple(conditions))
        assert holds is not None

        def emit(b: ir.IRBuilder, p: ir.Value, x: Any, y: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(b.select(p, u, v) for u, v in zip(x, y, strict=True))
            return b.select(p, x, y)

        return apply(emit, [holds, yes, no], self.entry)

    def constant(self, value: Any, dtype: DType) -> Val:
        t = register_type(dtype)
        if dtype.is_complex:
            z = complex(value)
            return Val((constant(t, z.real), constant(t, z.imag)), self.entry)
        number: Any = float(value) if dtype.is_float else int(value)
        return Val((constant(t, number),), self.entry)

    def iota(self, position: Expr, dtype: DType) -> Val:
        """Counted in 32 bits where the range allows: vectors of 64-bit integers are slow."""
        low, high = position.range
        narrow = dtype.name not in ("s64", "u64") and low > -(1 << 31) and high < 1 << 31
        kind = DTYPES["s32" if narrow else "s64"]
        value = self.index(position, kind.bits)
        if value.value.type == I64 and narrow:
            value = apply(lambda b, x: b.trunc(x, I32), [value], self.entry)
        return apply(lambda b, x: convert(b, x, kind, dtype), [value], self.entry)

    def table(self, instruction: Instruction, offset: Expr, mask: Mask) -> Val:
        array = np.ascontiguousarray(instruction.attrs["literal"].array)
        data = array.tobytes()
        name = "shardc.table." + hashlib.sha256(data).hexdigest()[:24]
        module = self.entry.builder.module
        place = module.globals.get(name)
        if place is None:
            t = ir.ArrayType(I8, len(data))
            place = ir.GlobalVariable(module, t, name)
            place.initializer = ir.Constant(t, bytearray(data))
            place.linkage, place.global_constant, place.align = "internal", True, 64
        return self._load(place, instruction.shape.size, instruction.shape.dtype, offset, mask, self.entry)

    def _make(self, instruction: Instruction, index: Index, mask: Mask) -> Answer:
        known = self.known.get(instruction)
        found = None if known is None else known(index, mask)
        return super()._make(instruction, index, mask) if found is None else found

    def load_stored(self, place: ir.Value, shape: Shape, offset: Expr, mask: Mask, since: Frame) -> Val:
        """An element of memory that holds (a part of) a value of ``shape``, but not yet before ``since``."""
        return self._load(place, shape.size, shape.dtype, offset, mask, since)

    def leaf(self, instruction: Instruction, offset: Expr, mask: Mask) -> Val:
        key = ("leaf", instruction, offset, mask)
        found = self._sums.get(key)
        if found is None or not found.frame.open:
            shape = instruction.shape
            if self.tile is not None and (value := self.tile.value(instruction, offset, shape.dtype)) is not None:
                return value
            frame = self._written.get(instruction, self.entry)
            found = self._load(self.pointers[instruction], shape.size, shape.dtype, offset, mask, frame)
            self._sums[key] = found
        return found

    def call_program(self, computation: Computation, arguments: Sequence[Val]) -> list[Val]:
        """The results of a called computation that is more than arithmetic on single elements."""
        raise NotImplementedError

    def call(self, computation: Computation, arguments: Sequence[Val], wide: bool = False) -> list[Val]:
        """The results of a called computation: arithmetic on single elements is emitted in place."""
        if not is_scalar_program(computation):
            return self.call_program(computation, arguments)
        known: dict[Instruction, Answer] = {}
        for i in computation:
            known[i] = self._step(i, known, arguments, wide)
        result = known[computation.root]
        return list(result) if isinstance(result, list) else [result]

    def _step(self, i: Instruction, known: dict[Instruction, Answer], arguments: Sequence[Val], wide: bool) -> Answer:
        operands = [known[o] for o in i.operands]
        if i.shape.is_array and i.shape.size != 1:
            raise UnsupportedError("a computation called per element must be scalar", where=f"%{i.name}")
        match i.opcode:
            case "parameter":
                return arguments[i.attrs["index"]]
            case "constant":
                return self.constant(i.attrs["literal"].splat, i.shape.dtype)
            case "tuple":
                return operands
            case "get-tuple-element":
                return operands[0][i.attrs["index"]]
            case "broadcast" | "reshape" | "bitcast" | "transpose":
                return operands[0]
            case "iota":
                return self.constant(0, i.shape.dtype)
            case "call" | "map" | "fusion":
                key = "calls" if i.opcode == "fusion" else "to_apply"
                results = self.call(i.attrs[key], operands, wide)
                return results if i.shape.is_tuple else results[0]
        return self.elementwise(i, operands, wide)

    # Memory.

    def _load(self, base: ir.Value, size: int, dtype: DType, offset: Expr, mask: Mask, frame: Frame) -> Val:
        low, high = offset.range
        if low >= 0 and high <= size:
            mask = tuple(c for c in mask if isinstance(c, Rest))
        holds = self.mask(mask)
        at, step, lanes, vector = self.split(offset)
        if step == 2 and vector is None and lanes > 2:
            return self._load_alternate(base, size, dtype, at, holds, frame, lanes)
        if vector is not None or step not in (0, 1, -1):
            offsets = self.index(offset)
            values = [offsets] if holds is None else [offsets, holds]
            return apply(lambda b, o, m=None: memory.gather(b, base, o, dtype, m), values, frame)
        if step == 0:
            return self._load_scalar(base, dtype, at, holds, frame)
        if step == -1:
            at = apply(lambda b, o: b.sub(o, constant(I64, lanes - 1)), [at], frame)
            holds = holds if holds is None or holds.lanes == 1 else self._reversed(holds, lanes)
        if holds is None:
            result = apply_uniform(lambda b, o: memory.load(b, base, o, dtype, lanes), [at], frame, lanes)
        elif holds.lanes == 1 and size >= lanes:
            clamp = lambda b, o, m: b.select(m, o, constant(I64, 0))  # noqa: E731
            safe = apply(clamp, [at, holds], frame)
            result = apply_uniform(lambda b, o: memory.load(b, base, o, dtype, lanes), [safe], frame, lanes)
        else:
            wide = Val(holds.wide(lanes), holds.frame, lanes)
            inner = deepest([at, wide], frame)
            result = Val(memory.load(inner.builder, base, at.value, dtype, lanes, wide.value), inner, lanes)
        return self._reversed(result, lanes) if step == -1 else result

    def _load_alternate(
        self, base: ir.Value, size: int, dtype: DType, at: Val, holds: Val | None, frame: Frame, lanes: int
    ) -> Val:
        """Every second element: from two vectors of neighbours, which end with the last element that is wanted."""
        if holds is not None and holds.lanes == 1 and size >= 2 * lanes - 1:
            at = apply(lambda b, o, m: b.select(m, o, constant(I64, 0)), [at, holds], frame)
            holds = None
        first = [2 * k for k in range(lanes // 2)]
        second = [2 * k + 1 for k in range(lanes // 2)]
        inner = deepest([at] if holds is None else [at, holds], frame)
        b = inner.builder
        masks: list[ir.Value | None] = [None, None]
        if holds is not None:
            wide = holds.wide(lanes)[0]
            none = zero(wide.type)
            masks = [shuffle(b, wide, none, _spread(places, lanes, n)) for n, places in enumerate((first, second))]
        start = b.add(at.value, constant(I64, lanes - 1))
        low = memory.load(b, base, at.value, dtype, lanes, masks[0])
        high = memory.load(b, base, start, dtype, lanes, masks[1])
        order = [*first, *(lanes + k for k in second)]
        return Val(tuple(shuffle(b, x, y, order) for x, y in zip(low, high, strict=True)), inner, lanes)

    def _load_scalar(self, base: ir.Value, dtype: DType, at: Val, holds: Val | None, frame: Frame) -> Val:
        if holds is not None:
            if holds.lanes > 1:
                holds = apply_uniform(memory.any_lane, [holds], frame, 1)
            at = apply(lambda b, o, m: b.select(m, o, constant(I64, 0)), [at, holds], frame)
        return apply(lambda b, o: memory.load(b, base, o, dtype, 1), [at], frame)

    def _reversed(self, v: Val, lanes: int) -> Val:
        def emit(b: ir.IRBuilder, x: Any) -> Any:
            parts = x if isinstance(x, tuple) else (x,)
            return tuple(shuffle(b, p, None, range(lanes - 1, -1, -1)) for p in parts)

        return apply(emit, [v], self.entry, lanes)

    # Indices.

    def bind(self, v: Var, value: Val, lanes: int = 1, *, whole: bool = False) -> None:
        """Say what a loop variable is from here on; a second time, what was computed from it is forgotten.

        ``whole`` as in `Binding`.
        """
        if v in self.bindings:
            self._memo = {k: x for k, x in self._memo.items() if v not in _variables(k)}
            self._sums = {k: x for k, x in self._sums.items() if v not in _variables(k)}
            made = {w: x for w, x in self.bindings.items() if isinstance(w, LoopVar) or v not in bases(Expr.of(w))}
            self.bindings = made
        self.bindings[v] = Binding(value, lanes, whole)

    def bound(self, v: Var) -> Binding:
        found = self.bindings.get(v)
        if found is not None and found.value.frame.open:
            return found
        assert not isinstance(v, LoopVar), f"{v} is not bound"
        made = self.bindings[v] = self._within_one(v) or Binding(self._derive(v))
        return made

    def _within_one(self, v: Var) -> Binding | None:
        """A quotient that is the same for all lanes, since no multiple of its divisor lies among them; or what is left
        of it, which counts lanes then."""
        if not isinstance(v, Quotient):
            return None
        terms = [(self.bound(w), c) for w, c in v.of.terms]
        wide = [(w, c) for w, c in terms if w.lanes > 1]
        if len(wide) != 1 or wide[0][1] != 1 or not wide[0][0].whole or v.of.range[0] < 0:
            return None
        lanes = wide[0][0].lanes
        others = [c for w, c in terms if w.lanes == 1]
        if any(n % lanes for n in (v.divisor, v.of.const, *others)) or any(w.value.lanes > 1 for w, _ in terms):
            return None
        start = self.split(v.of)[0]
        divide = "urem" if isinstance(v, Remainder) else "udiv"
        value = apply(lambda b, x: getattr(b, divide)(x, constant(I64, v.divisor)), [start], self.entry)
        return Binding(value, lanes, True) if isinstance(v, Remainder) else Binding(value)

    def _derive(self, v: Var) -> Val:
        if isinstance(v, LoadedIndex):
            instruction, index, mask = v.what
            value = self.value(instruction, index, mask)
            return apply(lambda b, x: as_index(b, x, instruction.shape.dtype, v.low, v.high), [value], self.entry)
        assert isinstance(v, Quotient)
        divide = "urem" if isinstance(v, Remainder) else "udiv"
        narrow = v.of.range[0] >= 0 and v.of.range[1] < 1 << 31

        def emit(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
            t = x.type
            if narrow:
                x = b.trunc(x, with_lanes(I32, memory_lanes(t)))
            x = getattr(b, divide)(x, constant(x.type, v.divisor))
            return b.zext(x, t) if narrow else x

        return apply(emit, [self.index(v.of)], self.entry)

    def split(self, e: Expr) -> tuple[Val, int, int, Val | None]:
        """(uniform part, step per lane, lanes, part that differs per lane in other ways)."""
        step, lanes = 0, 1
        uniform: list[tuple[Val, int]] = []
        varying: list[tuple[Val, int]] = []
        for v, c in e.terms:
            binding = self.bound(v)
            if binding.lanes > 1:
                step, lanes = step + c, binding.lanes
            if binding.value.lanes > 1:
                varying.append((binding.value, c))
                lanes = binding.value.lanes
            else:
                uniform.append((binding.value, c))
        vector = self._total(varying, 0) if varying else None
        return self._total(uniform, e.const), step, lanes, vector

    def _total(self, terms: list[tuple[Val, int]], const: int) -> Val:
        """``const + sum(c * v)``, outer frames' terms first, so that inner loops add little."""
        terms = sorted(terms, key=lambda t: t[0].frame.depth)
        key = (const, tuple((id(v), c) for v, c in terms))
        found = self._sums.get(key)
        if found is not None and found[0].frame.open:
            return found[0]  # type: ignore[no-any-return]
        total: Val | None = None
        for v, c in terms:
            if isinstance(v.value, ir.Constant) and v.value.constant == "0":
                continue
            scaled = v if c == 1 else apply(lambda b, x, c=c: b.mul(x, constant(x.type, c)), [v], self.entry)
            total = scaled if total is None else apply(lambda b, x, y: b.add(x, y), [total, scaled], self.entry)
        if total is None:
            total = Val((constant(I64, const),), self.entry)
        elif const:
            total = apply(lambda b, x: b.add(x, constant(x.type, const)), [total], self.entry)
        self._sums[key] = (total, terms)
        return total

    def index(self, e: Expr, bits: int = 64) -> Val:
        """The value of an index, a vector where it differs between lanes."""
        base, step, lanes, vector = self.split(e)
        if step == 0 and vector is None:
            return base
        numbers = memory.lane_numbers(lanes, bits)

        def emit(b: ir.IRBuilder, x: ir.Value, more: ir.Value | None = None) -> ir.Value:
            if bits < 64:
                x = b.trunc(x, ir.IntType(bits))
            total = splat(b, x, lanes)
            if step:
                ramp = numbers if step == 1 else b.mul(numbers, constant(numbers.type, step))
                total = b.add(total, ramp)
            if more is not None:
                total = b.add(total, b.trunc(more, total.type) if bits < 64 else more)
            return total

        frame = deepest([base] if vector is None else [base, vector], self.entry)
        parts = [base.value] if vector is None else [base.value, vector.value]
        return Val((emit(frame.builder, *parts),), frame, lanes)

    def mask(self, conditions: Mask) -> Val | None:
        """All conditions together, or None when there are none."""
        result: Val | None = None
        for c in conditions:
            one = self._condition(c)
            result = one if result is None else apply(lambda b, x, y: b.and_(x, y), [result, one], self.entry)
        return result

    def _condition(self, c: InRange) -> Val:
        found = self._sums.get(c)
        if found is not None and found.frame.open:
            return found  # type: ignore[no-any-return]
        low, high = c.expr.range
        bits = 32 if low > -(1 << 30) and high < 1 << 30 and abs(c.low) < 1 << 30 and c.high < 1 << 30 else 64
        position = self.index(c.expr - c.low, bits)
        test = lambda b, x: b.icmp_unsigned("<", x, constant(x.type, c.high - c.low))  # noqa: E731
        result = apply(test, [position], self.entry)
        self._sums[c] = result
        return result

    def depends_on_lanes(self, index: Index, mask: Mask) -> int:
        """Number of lanes over which an element varies now; 1 when it is the same for all."""
        for e in (*index, *(c.expr for c in mask)):
            for v in bases(e):
                binding = self.bindings.get(v)
                if binding is not None and max(binding.lanes, binding.value.lanes) > 1 and binding.value.frame.open:
                    return max(binding.lanes, binding.value.lanes)
        return 1

    def frame_of(self, index: Index, mask: Mask) -> Frame:
        """The deepest frame that the variables of an index and a mask live in."""
        values = [
            self.bound(v).value
            for e in (*index, *(c.expr for c in mask))
            for v in sorted(bases(e), key=lambda v: v.number)
        ]
        return deepest(values, self.entry)


def _variables(key: object) -> frozenset[Var]:
    """The variables in the key of a remembered value."""
    if isinstance(key, Expr):
        return bases(key)
    if isinstance(key, InRange):
        return bases(key.expr)
    if isinstance(key, tuple):
        return frozenset().union(*map(_variables, key))
    return frozenset()


def _spread(places: Sequence[int], lanes: int, half: int) -> list[int]:
    """For a shuffle with zeros: lane ``places[k]`` takes lane k of that half, the others nothing."""
    order = [lanes] * lanes
    for k, place in enumerate(places):
        order[place] = half * (lanes // 2) + k
    return order


def memory_lanes(t: ir.Type) -> int:
    return int(t.count) if isinstance(t, ir.VectorType) else 1


def apply_uniform(emit: Callable[..., Any], values: Sequence[Val], at: Frame, lanes: int) -> Val:
    """Like `apply` for operands used as they are; the result has ``lanes`` lanes."""
    frame = deepest(values, at)
    result = emit(frame.builder, *(v.value for v in values))
    return Val(result if isinstance(result, tuple) else (result,), frame, lanes)
