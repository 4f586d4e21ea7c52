"""QR and singular values of tall matrices whose rows are split (TSQR: Demmel, Grigori, Hoemmen, Langou, "Communication-
optimal parallel and sequential QR and LU factorizations", SIAM J. Sci. Comput. 34, 2012).

Each device factors its own rows. Then, mesh axis by mesh axis, the smallest first, neighbours gather their R and factor
these. What a device has of all these Q multiplies to its rows of Q. A device sends a few n by n matrices.

LAPACK's ``geqrf`` gives reflections and no Q. A reflection depends on the first n rows and on norms of what is below.
Those rows have the norms of their R, so all devices factor the first n rows and the R of the others alike. That gives R
with LAPACK's signs, the scales, and the first rows of V. Below, V is Q times the reflections' rows that belong to R.
Rows that do not count are zero and stand last wherever something is factored: then their rows of Q are exactly zero.

``orgqr`` multiplies reflections of split rows: Q = I - V T V^H, with T from V^H V (Joffrain, Low, Quintana-Orti, van de
Geijn, Van Zee, "Accumulating Householder transformations, revisited", ACM Trans. Math. Softw. 32, 2006).
"""

from __future__ import annotations

import math
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import LAPACK, attributes_of, routine_name
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.rules.matrices.matrix_writer import MatrixWriter
from shardc.partitioner.rules.matrices.split_rows import pass_or_permute, sent_by_sum, split_rows, told
from shardc.partitioner.strategy.choose import Sends, SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["TALL"]


class _TallFactors(NamedTuple):
    """What TSQR leaves on a device: its rows of Q, and R."""

    q: Instruction
    r: Instruction


# -- when, and what it sends -------------------------------------------------------------------------------------------


def _rule(op: Instruction) -> FactorRule | None:
    """Rows are split in operands and results alike."""
    routine = routine_name(op.attrs["custom_call_target"])
    known, shapes = LAPACK[op.attrs["custom_call_target"]], tuple(op.shape.leaves())
    m, n = op.operands[0].shape.dims[-2:]
    whole_u = routine == "gesdd" and chr(attributes_of(op).get("mode", 0)) not in "SN"
    if m < n or not n or (whole_u and m > n):
        return None
    operands = tuple(o.shape.dims for o in op.operands)
    return _equation(operands, tuple(s.dims for s in shapes), known.operands, known.results)


@lru_cache(maxsize=4096)
def _equation(
    operands: tuple[tuple[int, ...], ...],
    results: tuple[tuple[int, ...], ...],
    of_operands: tuple[str, ...],
    of_results: tuple[str, ...],
) -> FactorRule:
    b = RuleBuilder(operands, results)
    letters, dims = (*of_operands, *of_results), (*operands, *results)
    batch = len(operands[0]) - len(of_operands[0])
    for d in range(batch):
        b.add(operands[0][d], [(t, d) for t in range(len(dims))])
    b.add(operands[0][batch], [(t, batch) for t, w in enumerate(letters) if w.startswith("m")], FactorKind.PERMUTATION)
    return b.build()


def _tree_sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """The gathers of R at each level of the tree."""
    atoms, size = split_rows(table, problem, factors)
    m, n = problem.operands[0].dims[-2:]
    height, elements = min(-(-m // table.extent(atoms)), n), 0
    for a in reversed(atoms):
        elements += (table.extents[a] - 1) * height * n
        height = min(height * table.extents[a], n)
    return float(size * elements), len(atoms)


def _factor_sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """The tree, and the first n rows."""
    (atoms, size), n = split_rows(table, problem, factors), problem.operands[0].dims[-1]
    if not atoms:
        return (0.0, 0)
    m = problem.operands[0].dims[-2]
    if table.is_uneven(atoms, m) and m < 2 * n * table.extent(atoms):
        return (math.inf, 0)  # zero rows would stand both first and last
    sent, count = _tree_sends(table, problem, factors)
    return sent + sent_by_sum(table, atoms) * size * n * n, count + 1


def _reflect_sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """The first rows of V, and products of its columns."""
    atoms, size = split_rows(table, problem, factors)
    n, t = problem.operands[0].dims[-1], problem.operands[1].dims[-1]
    return sent_by_sum(table, atoms) * size * (n + t) * t, 1 if atoms else 0


_SENDS: MappingProxyType[str, Sends] = MappingProxyType(
    {"geqrf": _factor_sends, "orgqr": _reflect_sends, "gesdd": _tree_sends}
)


def _sends(op: Instruction, rule: FactorRule) -> Sends:
    return _SENDS[routine_name(op.attrs["custom_call_target"])]


# -- the tree ----------------------------------------------------------------------------------------------------------


def _rows_of(site: LocalSite) -> Atoms:
    return site.operand_atoms(0, site.operands[0].shape.rank - 2)


def _tree(site: LocalSite, x: Instruction, *, backwards: bool = False) -> _TallFactors:
    """Of own rows ``x``, those of the last device first if ``backwards``."""
    em, w = site.em, MatrixWriter(site.em)
    row = x.shape.rank - 2
    own, r = w.qr(x)
    below: Instruction | None = None
    for atom in reversed(_rows_of(site)):
        height = r.shape.dims[row]
        place, p, stacked = em.coordinate((atom,)), em.table.extents[atom], em.all_gather(r, row, (atom,))
        if backwards:
            place = em.add("subtract", place.shape, em.index(p - 1), place)
            parts = [w.rows(stacked, i * height, (i + 1) * height) for i in reversed(range(p))]
            stacked = em.concatenate(parts, row)
        q, r = w.qr(stacked)
        part = w.block(q, -2, em.scale(place, height), height)
        below = part if below is None else w.product(below, part)
    return _TallFactors(own if below is None else w.product(own, below), r)


def _first_rows(site: LocalSite, x: Instruction, count: int) -> Instruction:
    """The first ``count`` rows of all that devices have of ``x``, zeros where others have them."""
    em, w, atoms = site.em, MatrixWriter(site.em), _rows_of(site)
    chunk = x.shape.dims[-2]
    own = w.rows(x, 0, min(chunk, count))
    place = em.add("minimum", em.index(0).shape, em.scale(em.coordinate(atoms), chunk), em.index(count))
    room = w.zeros(x, count + min(chunk, count), x.shape.dims[-1])
    return w.rows(w.with_block(room, own, -2, place), 0, count)


def _from_first_rows(site: LocalSite, first: Instruction, other: Instruction) -> Instruction:
    """A device's rows: of ``first`` as long as there are some, then ``other``'s."""
    em, w, atoms = site.em, MatrixWriter(site.em), _rows_of(site)
    n, chunk = first.shape.dims[-2], other.shape.dims[-2]
    start = em.scale(em.coordinate(atoms), chunk)
    place = em.add("minimum", start.shape, start, em.index(n))
    room = w.with_block(w.zeros(first, n + chunk, first.shape.dims[-1]), first, -2, em.index(0))
    return em.select(_is_below(site, other, n), other, w.block(room, -2, place, chunk))


def _is_below(site: LocalSite, x: Instruction, n: int) -> Instruction:
    """Which elements of a device's rows stand behind row ``n``."""
    w, at = MatrixWriter(site.em), _global_rows(site, x)
    return w.compare(at, w.number(n, at), "GE")


def _global_rows(site: LocalSite, x: Instruction) -> Instruction:
    return site.em.global_index(x.shape.dims, x.shape.rank - 2, _rows_of(site))


# -- reflections -------------------------------------------------------------------------------------------------------


def _factor(site: LocalSite) -> list[Instruction]:
    """``geqrf``: rows above the diagonal are R's, those below are V's."""
    em, w, x = site.em, MatrixWriter(site.em), site.operands[0]
    n = x.shape.dims[-1]
    x = site.masked(0, (x.shape.rank - 2,), em.zero(x.shape.dtype))
    first = em.all_reduce(_first_rows(site, x, n), _rows_of(site), "bits")
    row, chunk = x.shape.rank - 2, x.shape.dims[-2]
    start = em.scale(em.coordinate(_rows_of(site)), chunk)
    gone = em.add("subtract", start.shape, em.index(n), em.add("minimum", start.shape, start, em.index(n)))
    gone = em.add("minimum", start.shape, gone, em.index(chunk))
    kept = em.add("subtract", start.shape, em.index(chunk), gone)
    even = not em.table.is_uneven(_rows_of(site), site.operand_dims(0)[-2])
    rest = _turned(site, w.select(_is_below(site, x, n), x), gone)
    q, r = _tree(site, rest, backwards=even)
    q = _turned(site, q, kept)
    packed, scale = w.factor(em.concatenate([first, r], row))
    below = w.product(q, w.rows(packed, n, 2 * n))
    return [_from_first_rows(site, w.rows(packed, 0, n), below), scale]


def _turned(site: LocalSite, x: Instruction, by: Instruction) -> Instruction:
    """Row ``by`` first, and the rows before it behind all others."""
    both = site.em.concatenate([x, x], x.shape.rank - 2)
    return MatrixWriter(site.em).block(both, -2, by, x.shape.dims[-2])


def _reflect(site: LocalSite) -> list[Instruction]:
    """``orgqr``: with D the scales and N above the diagonal of V^H V, T = D (I + N D)^-1."""
    em, w, (packed, scale) = site.em, MatrixWriter(site.em), site.operands
    n, t = packed.shape.dims[-1], scale.shape.dims[-1]
    v = site.masked(0, (packed.shape.rank - 2,), em.zero(packed.shape.dtype))
    v = w.columns(v, 0, t)
    at, column = _global_rows(site, v), w.index(v, -1)
    v = em.select(w.compare(at, column, "EQ"), w.number(1, v), w.select(w.compare(at, column, "GT"), v))
    both = em.concatenate([_first_rows(site, v, n), w.product(v, v, adjoint="first")], v.shape.rank - 2)
    both = em.all_reduce(both, _rows_of(site), "sum")
    first, products = w.rows(both, 0, n), w.rows(both, n, n + t)
    scales = em.reshape(scale, w.shape(v, 1, t).dims)
    turned = w.binary("multiply", w.triangle(products, "LT"), scales)
    x = w.solve(turned, w.adjoint(first), left=True, lower=False, unit=True)
    x = w.binary("multiply", em.reshape(scales, w.shape(v, t, 1).dims), x)
    own = w.product(v, x)
    at, column = _global_rows(site, own), w.index(own, -1)
    same = w.compare(at, column, "EQ")
    return [w.binary("subtract", w.select(same, w.number(1, own)), own)]


# -- singular values ---------------------------------------------------------------------------------------------------


def _singular(site: LocalSite) -> list[Instruction]:
    """``gesdd``: the singular values of R are those of the matrix, and Q times its left vectors are the left ones."""
    w, x = MatrixWriter(site.em), site.operands[0]
    q, r = _tree(site, site.masked(0, (x.shape.rank - 2,), site.em.zero(x.shape.dtype)))
    n = r.shape.dims[-1]
    shapes = [r.shape, *(site.local_shape(k).plain for k in range(1, 5))]
    with_vectors = chr(attributes_of(site.op)["mode"]) == "S"
    shapes[2] = w.shape(r, n, n)
    if not with_vectors:
        shapes[3] = w.shape(r, n, n)
    _, values, left, right, info = w.call("gesdd", [r], shapes, site.op.attrs["backend_config"])
    wide = site.local_shape(2).dims[-1]
    own = w.product(q, left) if with_vectors else w.zeros(q, q.shape.dims[-2], wide)
    return [x, values, own, right, info]


_EMITS = MappingProxyType({"geqrf": _factor, "orgqr": _reflect, "gesdd": _singular})


#: What crosses between devices.
_TOLD = MappingProxyType(
    {
        "geqrf": "neighbours exchange R, and all get the first rows",
        "orgqr": "devices add up the products of their reflections",
        "gesdd": "neighbours exchange R",
    }
)


def _emit(site: LocalSite) -> list[Instruction]:
    routine = routine_name(site.op.attrs["custom_call_target"])
    if atoms := _rows_of(site):
        with told(site, routine, atoms, _TOLD[routine]):
            return _EMITS[routine](site)
    shapes = [site.local_shape(k) for k in range(len(site.shapes))]
    return MatrixWriter(site.em).call(routine, site.operands, shapes, site.op.attrs.get("backend_config", "{}"))


TALL = Local(
    "rows split: QR of own rows, then of the R of neighbours", _emit, pass_or_permute, rule=_rule, sends=_sends
)
"""A way for LAPACK's ``geqrf``, ``orgqr`` and ``gesdd`` of tall matrices, in place of a gather."""
