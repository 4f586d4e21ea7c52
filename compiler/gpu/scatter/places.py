"""Where the updates of a scatter go."""

from __future__ import annotations

import math

from llvmlite import ir

from shardc.compiler.elements.affine import Expr, Mask, linear
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.emitter import ElementEmitter
from shardc.compiler.elements.frames import Frame, Val, apply
from shardc.compiler.elements.indexing import start_position
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DTYPES, DType
from shardc.native.math.vector import I64, constant, lanes_of, with_lanes

__all__ = ["ScatterPlaces"]


class ScatterPlaces:
    """The dimensions of a scatter by what they do (see `scatter.py`), and the element that an update goes to."""

    def __init__(self, root: Instruction) -> None:
        a = root.attrs
        count = len(root.operands) // 2
        self.root, self.attrs = root, a
        self.reducer: Computation = a["to_apply"]
        self.operands, self.indices, self.updates = (
            root.operands[:count],
            root.operands[count],
            root.operands[count + 1 :],
        )
        self.dims = self.operands[0].shape.dims
        self.update_dims = self.updates[0].shape.dims
        removed = {*a["inserted_window_dims"], *a.get("input_batching_dims", ())}
        kept = [d for d in range(len(self.dims)) if d not in removed]
        #: The operand's dimension of each dimension of the updates that is a window's.
        self.window = dict(zip(a["update_window_dims"], kept, strict=True))
        self.batch = [d for d in range(len(self.update_dims)) if d not in self.window]
        self.scattered = tuple(a["scatter_dims_to_operand_dims"])
        moving = [u for u, d in self.window.items() if d in self.scattered and self.extent(d) > 1]
        #: Dimensions of the updates, in the order in which updates are applied.
        self.position_dims = [*self.batch, *moving]
        self.column_dims = [u for u in self.window if u not in moving]
        self.positions = math.prod(self.update_dims[d] for d in self.position_dims)
        self.columns = math.prod(self.update_dims[d] for d in self.column_dims)
        self.size = self.positions * self.columns

    @property
    def disjoint(self) -> bool:
        """Whether the program guarantees that no two windows overlap. They can overlap although their starts differ."""
        return bool(self.attrs.get("unique_indices", False)) and self.position_dims == self.batch

    def extent(self, d: int) -> int:
        """The width of windows along dimension ``d`` of the operand."""
        return next((self.update_dims[u] for u, o in self.window.items() if o == d), 1)

    def _batching(self) -> list[tuple[int, int]]:
        """Dimensions of the operand that go along with dimensions of the indices: (it, the batch dimension)."""
        pairs = zip(
            self.attrs.get("input_batching_dims", ()), self.attrs.get("scatter_indices_batching_dims", ()), strict=True
        )
        return [(d, i - (1 if i > self.attrs["index_vector_dim"] else 0)) for d, i in pairs]

    def start(self, index: Index, component: int) -> Index:
        """Where component ``component`` of the start of an update's window lies in the indices."""
        batch = [index[d] for d in self.batch]
        return start_position(batch, component, self.attrs["index_vector_dim"], self.indices.shape)

    def target(self, e: Elements, index: Index) -> Index:
        """The element of the operand that the update at ``index`` goes to, if its window lies inside."""
        target = [Expr() for _ in self.dims]
        for u, d in self.window.items():
            target[d] = index[u]
        for component, d in enumerate(self.scattered):
            past = self.dims[d] - self.extent(d) + 1
            target[d] = target[d] + e.load_index(self.indices, self.start(index, component), (), 0, past)
        for d, number in self._batching():
            target[d] = index[self.batch[number]]
        return tuple(target)

    def fits(self, e: ElementEmitter, index: Index, frame: Frame) -> Val | None:
        """Whether the window of the update at ``index`` lies inside the operand. None: always."""
        found: Val | None = None
        for component, d in enumerate(self.scattered):
            raw = e.value(self.indices, self.start(index, component))
            past = self.dims[d] - self.extent(d) + 1

            def emit(b: ir.IRBuilder, x: ir.Value, past: int = past) -> ir.Value:
                x = _wide(b, x, self.indices.shape.dtype)
                return b.icmp_unsigned("<", x, constant(x.type, max(past, 0)))

            inside = apply(emit, [raw], frame)
            found = inside if found is None else apply(lambda b, x, y: b.and_(x, y), [found, inside], frame)
        return found

    # Rows.

    @property
    def _strides(self) -> dict[int, int]:
        """Of dimensions of the operand along which positions differ: elements from one to the next."""
        moved = [*self.scattered, *(d for d, _ in self._batching())]
        return {d: math.prod(self.dims[d + 1 :]) for d in moved}

    @property
    def unit(self) -> int:
        """Elements from a row's first element to the next row's."""
        return math.gcd(*self._strides.values()) or 1

    @property
    def rows(self) -> int:
        return math.prod(self.dims) // self.unit

    @property
    def row_dtype(self) -> DType:
        return DTYPES["s32" if self.rows < 1 << 31 else "s64"]

    def row(self, e: Elements, position: Index, mask: Mask) -> object:
        """The row of the update at ``position`` (an index into the positions' dimensions); -1 for one left out."""
        index = [Expr() for _ in self.update_dims]
        for d, x in zip(self.position_dims, position, strict=True):
            index[d] = x
        raw = [e.value(self.indices, self.start(tuple(index), c), mask) for c, _ in enumerate(self.scattered)]
        known = Expr()
        for u, d in self.window.items():
            known = known + index[u] * (self._strides.get(d, 0) // self.unit)
        for d, number in self._batching():
            known = known + index[self.batch[number]] * (self._strides[d] // self.unit)
        return e.compute(self._row, [e.iota(known, DTYPES["s64"]), *raw])

    def _row(self, b: ir.IRBuilder, row: ir.Value, *raw: ir.Value) -> ir.Value:
        outside: ir.Value | None = None
        for d, x in zip(self.scattered, raw, strict=True):
            wide = _wide(b, x, self.indices.shape.dtype)
            past = max(self.dims[d] - self.extent(d) + 1, 0)
            over = b.icmp_unsigned(">=", wide, constant(wide.type, past))
            outside = over if outside is None else b.or_(outside, over)
            row = b.add(row, b.mul(wide, constant(wide.type, self._strides[d] // self.unit)))
        if outside is not None:
            row = b.select(outside, constant(row.type, -1), row)
        narrow = with_lanes(ir.IntType(self.row_dtype.bits), lanes_of(row.type))
        return row if row.type == narrow else b.trunc(row, narrow)

    def column(self, index: Index) -> Expr:
        """Where a column lies in its row; ``index`` is into the updates."""
        target = [Expr() for _ in self.dims]
        for u in self.column_dims:
            target[self.window[u]] = index[u]
        return linear(target, self.dims)


def _wide(b: ir.IRBuilder, x: ir.Value, dtype: DType) -> ir.Value:
    """An index as i64; unsigned ones of 64 bits stay above everything."""
    t = with_lanes(I64, lanes_of(x.type))
    if dtype.bits >= 64:
        return x
    return b.sext(x, t) if dtype.kind == "signed" else b.zext(x, t)
