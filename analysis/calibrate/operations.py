"""Loops over elements: arithmetic by opcode and type, reductions, and what moves elements; a fit for each.

Simple arithmetic is measured twice, with few and with many operations per element in one kernel: the difference has
neither memory traffic nor call in it. Of what takes many instructions there is one per element, as in most programs:
one that waits for another's result is slower. The second operand makes the values return to where they began.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.analysis.calibrate.programs import MeasuredLoop

__all__ = ["Operation", "empty_loop", "operation_loops", "operations_fit", "parallel_fit"]

#: Elements of arithmetic, which then lies in L1, and operations per element of the two kernels.
_SIZE, _FEW, _MANY = 2048, 4, 16
#: Rows and columns of what is moved.
_SIDE = 64
#: Elements of a line that is sorted by the bytes of its keys.
_LINE = 2048
#: Seconds that all trips of a loop take together, roughly.
_LOOP = 1.5e-3


@dataclass(frozen=True, slots=True)
class Operation:
    """A chain of ``opcode`` on elements of ``dtype`` around the value ``start``.

    ``partner`` is what comes between two of them (empty: nothing, as they do not cancel), with the second operand
    ``other``; ``exponent`` is the second operand of ``opcode`` where that is not ``other`` (0: there is none).
    """

    opcode: str
    dtype: str
    start: float = 1.0
    other: float = 1.0
    partner: str = ""
    exponent: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.opcode} {self.dtype}"

    @property
    def unary(self) -> bool:
        return self.opcode not in _BINARY

    @property
    def costly(self) -> bool:
        """Whether the operation takes many instructions."""
        return self.unary


_BINARY = frozenset(("add", "subtract", "multiply", "divide", "maximum", "select", "xor", "shift-right-logical"))


def _returning(opcode: str, start: float, value: float, exponent: float = 0.0) -> list[Operation]:
    """The function that takes ``start`` to ``value``, and a product that takes it back."""
    return [Operation(opcode, t, start, start / value, "multiply", exponent) for t in ("f32", "f64")]


_ARITHMETIC = (
    *(Operation(o, t) for o in ("add", "multiply") for t in ("f32", "f64", "bf16", "f16")),
    *(Operation(o, t) for o in ("subtract", "divide") for t in ("f32", "f64")),
    *(Operation(o, t, partner="multiply") for o in ("maximum", "select") for t in ("f32", "f64")),
    Operation("multiply", "s32"),
    Operation("xor", "s32", partner="multiply"),
    Operation("add", "s32", partner="multiply"),
    Operation("shift-right-logical", "u32", other=0.0, partner="xor"),
    *_returning("exponential", 0.1, math.exp(0.1)),
    *_returning("exponential-minus-one", -0.5, math.expm1(-0.5)),
    *_returning("log", 3.0, math.log(3.0)),
    *_returning("log-plus-one", 0.5, math.log1p(0.5)),
    *_returning("tanh", 0.5, math.tanh(0.5)),
    *_returning("logistic", 0.5, 1 / (1 + math.exp(-0.5))),
    *_returning("sqrt", 2.0, math.sqrt(2.0)),
    *_returning("rsqrt", 2.0, 1 / math.sqrt(2.0)),
    *_returning("sine", 0.5, math.sin(0.5)),
    *_returning("cosine", 0.5, math.cos(0.5)),
    *_returning("erf", 0.5, math.erf(0.5)),
    *_returning("power", 1.5, 1.5**0.7, 0.7),
)


def _chain(o: Operation, length: int, size: int = _SIZE) -> MeasuredLoop:
    """``length`` operations on each of ``size`` elements, one after the other."""
    shape = f"{o.dtype}[{size}]"
    second = "" if o.unary and not o.exponent else ", %state2" if o.exponent else ", %state1"
    lines, value = [], "%state0"
    for n in range(length):
        made = f"%made{n}"
        if o.opcode == "select":
            lines.append(f"  %greater{n} = pred[{size}] compare({value}, %state1), direction=GT")
            lines.append(f"  {made} = {shape} select(%greater{n}, %state1, {value})")
        else:
            lines.append(f"  {made} = {shape} {o.opcode}({value}{second})")
        if o.partner:
            lines.append(f"  %back{n} = {shape} {o.partner}({made}, %state1)")
        value = f"%back{n}" if o.partner else made
    lines[-1] += " @"
    values = (o.start, o.other, o.exponent) if o.exponent else (o.start, o.other)
    results = (value, "%state1", "%state2")[: len(values)]
    trips = int(_LOOP / (5e-11 * size * length * (8 if o.costly else 1)))
    name = f"{o.key} x{length}" if size == _SIZE else f"{o.key} on threads"
    return MeasuredLoop(name, (shape,) * len(values), "\n".join(lines), results, max(20, trips), values)


_ADD = "%sum (a: {t}[], b: {t}[]) -> {t}[] {{\n  %a = {t}[] parameter(0)\n  %b = {t}[] parameter(1)\n"
_ADD += "  ROOT %c = {t}[] add(%a, %b)\n}}"


def _adder(dtype: str) -> str:
    return _ADD.replace("%sum", f"%sum_{dtype}").format(t=dtype)


def _reduction(kind: str, rows: int, columns: int, dims: str) -> MeasuredLoop:
    """A sum over ``dims`` of a matrix of which every iteration changes one element."""
    left = {"1": f"f32[{rows}]", "0": f"f32[{columns}]", "0,1": "f32[]"}[dims]
    first = "%r" if left == "f32[]" else "%e"
    lines = [
        "  %zero = f32[] constant(0)",
        f"  %r = {left} reduce(%state0, %zero), dimensions={{{dims}}}, to_apply=%sum_f32 @",
        *([] if left == "f32[]" else ["  %e = f32[1] slice(%r), slice={[0:1]}"]),
        f"  %u = f32[1,1] reshape({first})",
        "  %at = s32[] constant(0)",
        f"  %x = f32[{rows},{columns}] dynamic-update-slice(%state0, %u, %at, %at)",
    ]
    trips = max(10, min(2000, int(_LOOP / (rows * columns * 5e-11))))
    return MeasuredLoop(
        f"{kind} f32", (f"f32[{rows},{columns}]",), "\n".join(lines), ("%x",), trips, (0.0,), _adder("f32")
    )


def _moves() -> list[MeasuredLoop]:
    """What moves elements by other ways than from one end to the other: `_SIDE` squared elements, which lie in L1."""
    n, shape = _SIDE, f"f32[{_SIDE},{_SIDE}]"
    trips = int(_LOOP / 1e-6)
    ids = [
        "  %e = f32[1,1] slice(%g), slice={[0:1], [0:1]}",
        "  %c = s32[1,1] convert(%e)",
        "  %v = s32[] reshape(%c)",
        f"  %i2 = s32[{n}] broadcast(%v), dimensions={{}}",
        f"  %ids = s32[{n}] add(%state1, %i2)",
    ]
    gather = [
        f"  %g = {shape} gather(%state0, %state1), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
        f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{n}}} @",
        *ids,
    ]
    scatter = [
        f"  %r = {shape} scatter(%state0, %state1, %state2), update_window_dims={{1}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum_f32 @",
    ]
    sort = (
        "%less (a: f32[], b: f32[]) -> pred[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
        "  ROOT %c = pred[] compare(%a, %b), direction=LT, type=TOTALORDER\n}"
    )
    line = f"[16,{_LINE}]"
    # What was sorted, in no order again: lines that lie in order are merged.
    mixed = [
        f"  %n = u32{line} iota(), iota_dimension=1",
        "  %odd = u32[] constant(2654435769)",
        f"  %odds = u32{line} broadcast(%odd), dimensions={{}}",
        f"  %h = u32{line} multiply(%n, %odds)",
        f"  %bits = u32{line} bitcast-convert(%state0)",
        f"  %m = u32{line} xor(%bits, %h)",
        f"  %x = f32{line} bitcast-convert(%m)",
        f"  %r = f32{line} sort(%x), dimensions={{1}}, to_apply=%less @",
    ]
    halves = [
        f"  %top = f32[1,{n}] slice(%state0), slice={{[0:1], [0:{n}]}}",
        f"  %rest = f32[{n - 1},{n}] slice(%state0), slice={{[1:{n}], [0:{n}]}}",
        f"  %r = {shape} concatenate(%rest, %top), dimensions={{0}} @",
    ]
    columns = [
        f"  %left = f32[{n},1] slice(%state0), slice={{[0:{n}], [0:1]}}",
        f"  %rest = f32[{n},{n - 1}] slice(%state0), slice={{[0:{n}], [1:{n}]}}",
        f"  %r = {shape} concatenate(%rest, %left), dimensions={{1}} @",
    ]
    transpose = f"  %r = {shape} transpose(%state0), dimensions={{1,0}} @"
    return [
        MeasuredLoop("transpose f32", (shape,), transpose, ("%r",), trips),
        MeasuredLoop("gather f32", (shape, f"s32[{n}]"), "\n".join(gather), ("%state0", "%ids"), trips, (0.0, 7.0)),
        MeasuredLoop(
            "scatter f32", (shape, f"s32[{n}]", shape), "\n".join(scatter), ("%r", "%state1", "%state2"), trips,
            (0.0, 7.0, 0.0), _adder("f32"),
        ),
        MeasuredLoop("concatenate f32", (shape,), "\n".join(halves), ("%r",), trips),
        MeasuredLoop("concatenate-last f32", (shape,), "\n".join(columns), ("%r",), trips),
        MeasuredLoop("reverse f32", (shape,), f"  %r = {shape} reverse(%state0), dimensions={{1}} @", ("%r",), trips),
        MeasuredLoop(
            "sort f32", (f"f32{line}",), "\n".join(mixed), ("%r",), 10, (0.0,), sort,
        ),
    ]  # fmt: skip


def _conversions() -> list[MeasuredLoop]:
    """There and back: two conversions per element and kernel."""
    loops = []
    for narrow, wide in (("bf16", "f32"), ("f16", "f32"), ("f32", "f64"), ("f32", "s32")):
        lines, value = [], "%state0"
        for k in range(4):
            lines.append(f"  %wide{k} = {wide}[{_SIZE}] convert({value})")
            lines.append(f"  %sum{k} = {wide}[{_SIZE}] add(%wide{k}, %state1)")
            lines.append(f"  %narrow{k} = {narrow}[{_SIZE}] convert(%sum{k}) {'@' if k == 3 else ''}")
            value = f"%narrow{k}"
        shapes = (f"{narrow}[{_SIZE}]", f"{wide}[{_SIZE}]")
        loops.append(
            MeasuredLoop(f"convert {narrow} {wide} x4", shapes, "\n".join(lines), (value, "%state1"), 500, (1.0, 0.0))
        )
    return loops


def empty_loop() -> MeasuredLoop:
    """A kernel that does next to nothing: what a call and the clock take."""
    return MeasuredLoop("empty", ("s32[]",), "  %r = s32[] negate(%state0) @", ("%r",), 4000, (1.0,))


def operation_loops(*, small: bool = False) -> list[MeasuredLoop]:
    """All that `operations_fit` wants measured; ``small``: only f32 and integers."""
    chosen = [o for o in _ARITHMETIC if not small or o.dtype in ("f32", "s32", "u32")]
    chains = [_chain(o, n) for o in chosen for n in ((1,) if o.costly else (_FEW, _MANY))]
    chains += [_chain(o, 1, _LARGE) for o in chosen if o.key in _ON_THREADS]
    reductions = [
        _reduction("reduce-rows", 16, 256, "1"),
        _reduction("reduce-columns", 16, 256, "0"),
        _reduction("reduce-all", 16, 256, "0,1"),
        _reduction("row", _ROWS, 16, "1"),
    ]
    return [*chains, *_conversions(), *reductions, *_moves()]


def operations_fit(seconds: Mapping[str, float], call: float) -> dict[str, float]:
    """Seconds per element by ``"opcode dtype"``, from seconds by loop; ``call`` are those of an empty kernel.

    Example: chains of 4 and 16 additions of 2048 elements in 1 us and 2 us make 1 us / (12 x 2048) an addition.
    """
    found: dict[str, float] = {}
    for o in _ARITHMETIC:
        one, few, many = (seconds.get(f"{o.key} x{n}") for n in (1, _FEW, _MANY))
        if one is not None:
            found[o.key] = max(one - call, 0.1 * one) / _SIZE
        elif few is not None and many is not None:
            found[o.key] = max(many - few, 0.02 * many) / ((_MANY - _FEW) * _SIZE)
    for o in _ARITHMETIC:
        partner = found.get(f"{o.partner} {o.dtype.replace('u', 's')}")
        if partner is not None and o.key in found:
            found[o.key] = max(found[o.key] - partner, 0.1 * found[o.key])
    for name, spent in seconds.items():
        key, _, times = name.rpartition(" x")
        if key.startswith("convert ") and times == "4":
            found[key] = max(spent - call, 0.1 * spent) / (8 * _SIZE)
        elif name in _ELEMENTS:
            found[name] = max(spent - call, 0.1 * spent) / _ELEMENTS[name]
    if "row f32" in seconds:
        elements = 16 * _ROWS * found.get("reduce-rows f32", 0.0)
        found["row f32"] = max(seconds["row f32"] - call - elements, 0.1 * seconds["row f32"]) / _ROWS
    return found


#: Short rows, of whose sums each one costs more than its elements.
_ROWS = 2048


def parallel_fit(alone: Mapping[str, float], busy: Mapping[str, float], threads: int, call: float) -> float:
    """Seconds that a kernel takes longer on ``threads`` threads than its share of one thread's time: the least of
    what several kernels show, since whatever disturbs a thread only makes it more."""
    names = [f"{key} on threads" for key in _ON_THREADS]
    extra = [(alone[name] - call) - (busy[name] - call) / threads for name in names if name in alone and name in busy]
    return max(0.0, min(extra, default=0.0))


#: What is measured on several threads, too, and on how many elements: enough to be worth them.
_ON_THREADS, _LARGE = ("exponential f32", "log f32", "tanh f32", "sine f32", "power f32"), 1 << 17


#: Elements of the loops that are no chains.
_ELEMENTS: Mapping[str, float] = {
    **dict.fromkeys(("reduce-rows f32", "reduce-columns f32", "reduce-all f32"), 16 * 256.0),
    **dict.fromkeys(
        ("transpose f32", "gather f32", "scatter f32", "concatenate f32", "concatenate-last f32", "reverse f32"),
        float(_SIDE * _SIDE),
    ),
    "sort f32": 16.0 * _LINE * 4,
}
