"""The map of one step of a recurrence on its carried values: affine, or a quotient of two affine forms, per element.

The composition of two maps of one kind is a map of that kind. So the map of many steps is known without their initial
values: ``x -> A x + B`` by one matrix and one vector per element, ``x -> (p x + q) / (r x + s)`` by four numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.ir.ir import Instruction, topological
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, make
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.loops.recurrence import Recurrence

__all__ = ["Coefficient", "StepMap", "find_step_maps", "materialise", "plus", "product"]

#: A value of the loop's body that no carried value of the map decides, or 0, 1 or -1 everywhere.
Coefficient = Instruction | int

#: Most carried values that are mapped together: what is composed grows with the square.
_MOST = 4

_MOVED = frozenset(("reshape", "copy", "bitcast"))


@dataclass(frozen=True, slots=True)
class StepMap:
    """The map of a group of carried values that depend on each other; ``carries`` are their positions in the
    recurrence. ``matrix[i][j]`` and ``rest[i]`` give the new i-th value. If ``below``, ``(r, s)``, is set, they give
    the numerator of the only value. ``resets``: a step may discard the carried value, whatever it was.
    """

    carries: tuple[int, ...]
    matrix: tuple[tuple[Coefficient, ...], ...]
    rest: tuple[Coefficient, ...]
    below: tuple[Coefficient, Coefficient] | None
    resets: bool

    @property
    def coefficients(self) -> list[Instruction]:
        """All values of the body that are coefficients."""
        every = (*(c for row in self.matrix for c in row), *self.rest, *(self.below or ()))
        return [c for c in every if isinstance(c, Instruction)]

    @property
    def adds(self) -> bool:
        """Whether the map only adds to the carried values."""
        size = range(len(self.carries))
        return self.below is None and all(self.matrix[i][j] == int(i == j) for i in size for j in size)

    @property
    def keeps(self) -> bool:
        """Whether the map changes nothing."""
        return self.adds and all(isinstance(c, int) and c == 0 for c in self.rest)

    @property
    def numbers(self) -> int:
        """How many numbers per element tell the map from others of its kind."""
        count = len(self.carries)
        return 0 if self.keeps else count if self.adds else 4 if self.below else count * (count + 1)


def find_step_maps(found: Recurrence) -> tuple[StepMap, ...] | None:
    """The maps, each after the maps that it depends on; None if a carried value has another kind of map."""
    carries = found.carries
    reads = [_carries_read(found, c.after) for c in carries]
    groups = _strong_components(reads)
    out = []
    for group in groups:
        made = _Forms(found, group).map()
        if made is None:
            return None
        out.append(made)
    return tuple(out)


def _carries_read(found: Recurrence, x: Instruction) -> set[int]:
    needed = {*topological([x])}
    return {k for k, c in enumerate(found.carries) if any(b in needed for b in c.before)}


def _strong_components(reads: Sequence[set[int]]) -> list[tuple[int, ...]]:
    """Groups of values that read each other, ordered so that each group reads only earlier groups."""
    reach = [set(r) for r in reads]
    for k in range(len(reads)):
        for r in reach:
            if k in r:
                r |= reach[k]
    groups = {
        tuple(j for j in range(len(reads)) if j == k or (j in reach[k] and k in reach[j])) for k in range(len(reads))
    }
    return sorted(groups, key=lambda group: (len(reach[group[0]] | set(group)), group))


@dataclass(frozen=True, slots=True)
class _Form:
    """Coefficients of the carried values, and the constant rest; ``below`` is the denominator, of the same kind, or
    None."""

    terms: Mapping[int, Coefficient]
    rest: Coefficient
    below: _Form | None = None

    @property
    def is_constant(self) -> bool:
        return not self.terms


class _NotMappedError(Exception):
    """A carried value enters an operation that no known map describes."""


@dataclass(slots=True)
class _Forms:
    found: Recurrence
    group: tuple[int, ...]
    forms: dict[Instruction, _Form] = field(default_factory=dict)
    resets: bool = False

    def map(self) -> StepMap | None:
        """The group's map."""
        carries = [self.found.carries[k] for k in self.group]
        shapes = {(c.after.shape.dims, c.after.shape.dtype) for c in carries}
        if len(self.group) > _MOST or len(shapes) > 1 or not _is_supported(carries[0].after):
            return None
        for k, c in zip(self.group, carries, strict=True):
            self.forms.update((b, _Form({k: 1}, 0)) for b in c.before)
        try:
            for i in topological([c.after for c in carries]):
                if i not in self.forms and any(o in self.forms for o in i.operands):
                    self.forms[i] = self._form(i)
        except _NotMappedError:
            return None
        results = [self.forms.get(c.after, _Form({}, c.after)) for c in carries]
        matrix = tuple(tuple(f.terms.get(k, 0) for k in self.group) for f in results)
        rest = tuple(f.rest for f in results)
        below = results[0].below
        if below is None:
            return StepMap(self.group, matrix, rest, None, self.resets)
        if len(self.group) > 1:
            return None
        return StepMap(self.group, matrix, rest, (below.terms.get(self.group[0], 0), below.rest), self.resets)

    def _form(self, i: Instruction) -> _Form:
        """The form that ``i`` computes from the forms of its operands, and from other values."""
        op = i.opcode
        if op == "negate":
            return self._scaled(self.forms[i.operands[0]], -1, i)
        if op in _MOVED and i.shape.dtype is i.operands[0].shape.dtype:
            return self._each(self.forms[i.operands[0]], lambda c: self._moved(c, i))
        if op in ("add", "subtract", "multiply", "divide"):
            a, b = (self.forms.get(o) for o in i.operands)
            x, y = i.operands
            if op == "multiply":
                if a is not None and b is not None:
                    raise _NotMappedError
                return self._scaled(a, y, i) if a is not None else self._scaled(_only(b), x, i)
            if op == "divide":
                return self._quotient(a, b, i)
            sign = 1 if op == "add" else -1
            return self._sum(a or _Form({}, x), b or _Form({}, y), sign, i)
        if op == "select" and i.operands[0] not in self.forms:
            return self._selected(i)
        raise _NotMappedError

    def _sum(self, a: _Form, b: _Form, sign: int, i: Instruction) -> _Form:
        if a.below is not None and b.below is not None:
            raise _NotMappedError
        below = a.below or b.below
        if below is not None:
            a, b = (f if f.below else self._times(below, f, i) for f in (a, b))
        terms = {k: plus(a.terms.get(k, 0), b.terms.get(k, 0), sign, i) for k in (*a.terms, *b.terms)}
        return _Form(terms, plus(a.rest, b.rest, sign, i), below)

    def _times(self, form: _Form, constant: _Form, i: Instruction) -> _Form:
        if constant.terms:
            raise _NotMappedError
        return self._scaled(form, constant.rest, i)

    def _quotient(self, a: _Form | None, b: _Form | None, i: Instruction) -> _Form:
        if not i.shape.dtype.is_float and not i.shape.dtype.is_complex:
            raise _NotMappedError
        x, y = i.operands
        if b is None:
            a = _only(a)
            if a.below is None:
                return self._each(a, lambda c: _over(c, y, i))
            return _Form(a.terms, a.rest, self._scaled(a.below, y, i))
        if len(self.group) > 1 or (a is not None and a.below is not None) or i.shape.dtype.is_complex:
            raise _NotMappedError
        above = a or _Form({}, x)
        if b.below is not None:
            above = self._times(b.below, above, i)
        return _Form(above.terms, above.rest, _Form(b.terms, b.rest))

    def _selected(self, i: Instruction) -> _Form:
        test, x, y = i.operands
        a, b = self.forms.get(x), self.forms.get(y)
        self.resets |= a is None or b is None or a.is_constant or b.is_constant
        a, b = a or _Form({}, x), b or _Form({}, y)

        def choose(p: _Form, q: _Form) -> _Form:
            terms = {k: _either(test, p.terms.get(k, 0), q.terms.get(k, 0), i) for k in (*p.terms, *q.terms)}
            return _Form(terms, _either(test, p.rest, q.rest, i))

        above = choose(_Form(a.terms, a.rest), _Form(b.terms, b.rest))
        if a.below is None and b.below is None:
            return above
        one = _Form({}, 1)
        return _Form(above.terms, above.rest, choose(a.below or one, b.below or one))

    def _scaled(self, f: _Form, by: Coefficient, i: Instruction) -> _Form:
        return _Form({k: product(c, by, i) for k, c in f.terms.items()}, product(f.rest, by, i), f.below)

    def _each(self, f: _Form, change: Callable[[Coefficient], Coefficient]) -> _Form:
        below = None if f.below is None else self._each(f.below, change)
        return _Form({k: change(c) for k, c in f.terms.items()}, change(f.rest), below)

    def _moved(self, c: Coefficient, i: Instruction) -> Coefficient:
        return c if isinstance(c, int) else _made(i.opcode, (c,), i, **i.attrs)


def _is_supported(x: Instruction) -> bool:
    """Element types in which the composed map is as exact as the steps."""
    dtype = x.shape.dtype
    return x.shape.is_array and (dtype.is_integer or dtype.is_complex or dtype.name in ("f32", "f64"))


def _only(form: _Form | None) -> _Form:
    assert form is not None
    return form


def _made(opcode: str, operands: Sequence[Instruction], like: Instruction, **attrs: object) -> Instruction:
    made = make(opcode, like.shape.plain, operands, like, **attrs)
    made.sharding = like.sharding
    return made


def materialise(c: Coefficient, like: Instruction) -> Instruction:
    """The coefficient as a value with the shape and type of ``like``. Zero is negative: that changes no sum, while
    adding a positive zero makes a negative zero positive."""
    if isinstance(c, Instruction):
        return c
    dtype = like.shape.dtype
    zero = 0 if dtype.is_integer else complex(-0.0, -0.0) if dtype.is_complex else -0.0
    literal = Literal.full(array_shape(dtype), c or zero)
    one = make("constant", literal.shape, (), like, literal=literal)
    if isinstance(like.sharding, Sharding):
        one.sharding = replace(like.sharding, dims=())
    spread = broadcast_scalar(one, like.shape.dims, like)
    if spread is not one:
        spread.sharding = like.sharding
    return spread


def plus(a: Coefficient, b: Coefficient, sign: int, like: Instruction) -> Coefficient:
    if isinstance(b, int) and b == 0:
        return a
    if isinstance(a, int) and a == 0:
        return b if sign == 1 else product(b, -1, like)
    return _made("add" if sign == 1 else "subtract", (materialise(a, like), materialise(b, like)), like)


def product(a: Coefficient, b: Coefficient, like: Instruction) -> Coefficient:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, int):
            if x == 0 or isinstance(y, int):
                return x * y if isinstance(y, int) else 0
            return y if x == 1 else _made("negate", (y,), like)
    return _made("multiply", (materialise(a, like), materialise(b, like)), like)


def _over(a: Coefficient, b: Instruction, like: Instruction) -> Coefficient:
    return a if isinstance(a, int) and a == 0 else _made("divide", (materialise(a, like), b), like)


def _either(test: Instruction, a: Coefficient, b: Coefficient, like: Instruction) -> Coefficient:
    if isinstance(a, int) and isinstance(b, int) and a == b:
        return a
    return _made("select", (test, materialise(a, like), materialise(b, like)), like)
