"""What the lanes of an emulated warp do together: see each other's values, multiply matrices, load them."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.native.gpu.emulated.records import THREAD, THREAD_BYTES, WARP, load_field, store_field
from shardc.native.gpu.grid import Mma
from shardc.native.llvm.flow import at_byte
from shardc.native.math.vector import F32, F64, HALF, I16, I32, I64, PTR, constant

__all__ = ["Exchange", "matrices", "multiply"]

_SLOT_BYTES = 64


class Exchange:
    """Values that every lane shows to the others at one meeting: `show` before it, `see` behind it."""

    def __init__(self, b: ir.IRBuilder, context: ir.Value) -> None:
        self._context = context
        meetings = load_field(b, context, THREAD["meetings"])
        store_field(b, context, THREAD["meetings"], b.add(meetings, constant(I32, 1)))
        turn = b.mul(b.and_(meetings, constant(I32, 1)), constant(I32, _SLOT_BYTES))
        self._slot = b.zext(b.add(turn, constant(I32, THREAD["slots"].at)), I64)
        self.types: list[ir.Type] = []

    @property
    def place(self) -> tuple[ir.Value, ir.Value]:
        """This thread, and at which of its bytes the values of this meeting begin."""
        return self._context, self._slot

    def show(self, b: ir.IRBuilder, values: Sequence[ir.Value]) -> None:
        assert 8 * len(values) <= _SLOT_BYTES
        for n, value in enumerate(values):
            b.store(value, at_byte(b, self._context, b.add(self._slot, constant(I64, 8 * n))))
            self.types.append(value.type)

    def see(self, b: ir.IRBuilder, lane: ir.Value, number: int) -> ir.Value:
        """Value ``number`` of ``lane`` (i32)."""
        return b.load(see_at(b, self._context, self._slot, lane, 8 * number), typ=self.types[number])


def see_at(b: ir.IRBuilder, context: ir.Value, slot: ir.Value, lane: ir.Value, offset: int) -> ir.Value:
    """Where byte ``offset`` of what ``lane`` shows lies."""
    own = b.and_(load_field(b, context, THREAD["number"]), constant(I32, WARP - 1))
    distance = b.mul(b.sext(b.sub(b.and_(lane, constant(I32, WARP - 1)), own), I64), constant(I64, THREAD_BYTES))
    return at_byte(b, context, b.add(b.add(distance, slot), constant(I64, offset)))


def multiply(b: ir.IRBuilder, kind: Mma, shown: Exchange, c: Sequence[ir.Value]) -> list[ir.Value]:
    """What this thread holds of the product: a call, since bodies hold many."""
    name = f"shardc.mma.{kind.name}"
    real = F64 if kind.accumulator == "f64" else F32
    function = b.module.globals.get(name)
    if function is None:
        result = ir.LiteralStructType([real] * kind.c)
        function = ir.Function(b.module, ir.FunctionType(result, [PTR, I64] + [real] * kind.c), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        _product(ir.IRBuilder(function.append_basic_block()), kind)
    found = b.call(function, [*shown.place, *c])
    return [b.extract_value(found, n) for n in range(kind.c)]


def _product(b: ir.IRBuilder, kind: Mma) -> None:
    """Thread ``lane`` holds columns ``2 * (lane % 4)`` and the next one of rows ``lane / 4`` and 8 below."""
    context, slot, *sums = b.function.args
    number = load_field(b, context, THREAD["number"])
    lane = b.and_(number, constant(I32, WARP - 1))
    row, column = b.lshr(lane, constant(I32, 2)), b.shl(b.and_(lane, constant(I32, 3)), constant(I32, 1))
    places = [(n // 2, n % 2) for n in range(kind.c)]
    rows = {
        down: [_left(b, kind, context, slot, row, down, k) for k in range(kind.k)] for down in {p[0] for p in places}
    }
    columns = {}
    for right in (0, 1):
        at = b.add(column, constant(I32, right))
        columns[right] = [_right(b, kind, context, slot, at, k) for k in range(kind.k)]
    results = []
    for total, (down, right) in zip(sums, places, strict=True):
        for x, y in zip(rows[down], columns[right], strict=True):
            total = b.fadd(total, b.fmul(x, y))
        results.append(total)
    whole: ir.Value = ir.Constant(b.function.function_type.return_type, ir.Undefined)
    for n, value in enumerate(results):
        whole = b.insert_value(whole, value, n)
    b.ret(whole)


def _left(b: ir.IRBuilder, kind: Mma, context: ir.Value, slot: ir.Value, row: ir.Value, down: int, k: int) -> ir.Value:
    """a[row + 8 * down, k]: in lane ``4 * row + ...``, its registers count rows first."""
    lane, high, half = _of_depth(b, kind, row, k)
    return _element(b, kind, see_at(b, context, slot, lane, 8 * (down + 2 * high) + half))


def _right(b: ir.IRBuilder, kind: Mma, context: ir.Value, slot: ir.Value, column: ir.Value, k: int) -> ir.Value:
    """b[k, column]."""
    lane, high, half = _of_depth(b, kind, column, k)
    return _element(b, kind, see_at(b, context, slot, lane, 8 * (kind.a + high) + half))


def _of_depth(b: ir.IRBuilder, kind: Mma, line: ir.Value, k: int) -> tuple[ir.Value, int, int]:
    """The lane with element ``k`` of a row of a or a column of b, which half of the depth, and the byte within."""
    packed = 2 if kind.operand in ("bf16", "f16") else 1
    step, within = divmod(k, packed)
    high, quarter = divmod(step, 4)
    return b.add(b.shl(line, constant(I32, 2)), constant(I32, quarter)), high, 2 * within


def _element(b: ir.IRBuilder, kind: Mma, place: ir.Value) -> ir.Value:
    match kind.operand:
        case "bf16":
            bits = b.zext(b.load(place, typ=I16), I32)
            return b.bitcast(b.shl(bits, constant(I32, 16)), F32)
        case "f16":
            return b.fpext(b.load(place, typ=HALF), F32)
        case "tf32":  # the low bits of an f32 are not looked at
            return b.bitcast(b.and_(b.load(place, typ=I32), constant(I32, 0xFFFFE000)), F32)
    return b.load(place, typ=F64)


def matrices(b: ir.IRBuilder, shown: Exchange, lane: ir.Value, count: int, transposed: bool) -> list[ir.Value]:
    """``ldmatrix``: lane l gets elements 2 * (l % 4) and the next one of row l / 4 (transposed: of column l / 4)."""
    line, pair = b.lshr(lane, constant(I32, 2)), b.and_(lane, constant(I32, 3))
    found = []
    for m in range(count):
        first = constant(I32, 8 * m)
        if not transposed:
            row = shown.see(b, b.add(first, line), 0)
            at = b.zext(b.shl(pair, constant(I32, 2)), I64)
            found.append(b.load(at_byte(b, row, at), typ=I32, align=4))
            continue
        at = b.zext(b.shl(line, constant(I32, 1)), I64)
        twice = b.add(first, b.shl(pair, constant(I32, 1)))
        rows = [shown.see(b, b.add(twice, constant(I32, n)), 0) for n in (0, 1)]
        low, high = (b.zext(b.load(at_byte(b, r, at), typ=I16, align=2), I32) for r in rows)
        found.append(b.or_(low, b.shl(high, constant(I32, 16))))
    return found
