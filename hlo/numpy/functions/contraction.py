"""Products: matmul and its relatives, dot, tensordot, einsum."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardc.hlo.numpy.functions.ufuncs import fold
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.strides import Strides
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import (
    broadcast,
    convert,
    emit,
    full,
    hlo_dtype,
    iota,
    lift,
    normal_axis,
    refuse,
    reshape,
    transpose,
)

__all__ = ["FUNCTIONS", "GUFUNCS", "dot_general"]

Axes = Sequence[int]


def dot_general(a: Tracer, b: Tracer, contract: tuple[Axes, Axes], batch: tuple[Axes, Axes] = ((), ())) -> Tracer:
    """HLO's dot: batch dimensions, then the free ones of ``a``, then those of ``b``. On bool it is any-of-ands."""
    left, right = ([x.shape[d] for d in dims] for x, dims in zip((a, b), contract, strict=True))
    if left != right:
        raise ValueError(f"shapes {a.shape} and {b.shape} not aligned: {left} != {right}")
    if a.aval.dtype.kind == "pred":
        return convert(dot_general(convert(a, np.int32), convert(b, np.int32), contract, batch), np.bool)
    return emit(
        "dot",
        a,
        b,
        lhs_contracting_dims=tuple(contract[0]),
        rhs_contracting_dims=tuple(contract[1]),
        lhs_batch_dims=tuple(batch[0]),
        rhs_batch_dims=tuple(batch[1]),
    )


def _common(*values: Tracer) -> tuple[Tracer, ...]:
    """All in the type that NumPy promotes them to."""
    dtype = hlo_dtype(np.result_type(*(v.dtype for v in values)), values[0].recorder).numpy
    return tuple(convert(v, dtype) for v in values)


def _broadcast_batches(a: Tracer, b: Tracer, rank_a: int, rank_b: int) -> tuple[Tracer, Tracer, tuple[int, ...]]:
    """Leading dimensions broadcast against each other."""
    lead = np.broadcast_shapes(a.shape[: a.ndim - rank_a], b.shape[: b.ndim - rank_b])
    a = broadcast(a, (*lead, *a.shape[a.ndim - rank_a :]))
    b = broadcast(b, (*lead, *b.shape[b.ndim - rank_b :]))
    return a, b, tuple(range(len(lead)))


def _product(a: Tracer, b: Tracer, core_a: str, core_b: str) -> Tracer:
    """A generalised ufunc over trailing dimensions named by letters; the shared letter is contracted."""
    if a.shape[a.ndim - len(core_a) + core_a.index("k")] != b.shape[b.ndim - len(core_b) + core_b.index("k")]:
        raise ValueError(f"matmul: dimensions of {a.shape} and {b.shape} do not fit")
    if b.ndim == len(core_b):  # one matrix or vector for all: no need to spread it.
        return dot_general(a, b, ((a.ndim - 1,), (core_b.index("k"),)))
    a, b, lead = _broadcast_batches(a, b, len(core_a), len(core_b))
    n = len(lead)
    return dot_general(a, b, ((n + core_a.index("k"),), (n + core_b.index("k"),)), (lead, lead))


_CORES = {"matmul": ("ik", "kj"), "matvec": ("ik", "k"), "vecmat": ("k", "kj"), "vecdot": ("k", "k")}


def _gufunc(recorder: Trace, ufunc: Any, a: Any, b: Any, axis: Any = None, dtype: Any = None, **rest: Any) -> Tracer:
    x, y = lift(recorder, a), lift(recorder, b)
    name = ufunc.__name__
    if rest:
        refuse(
            recorder,
            f"np.{name}({', '.join(rest)}=)",
            "move axes with np.moveaxis, and replace keepdims by x[..., None]",
        )
    if not x.ndim or not y.ndim:
        raise ValueError(f"{name}: operands must have at least one dimension")
    options = {} if dtype is None else {"signature": (None, None, np.dtype(dtype))}
    types = ufunc.resolve_dtypes((x.dtype, y.dtype, None), **options)
    x, y = convert(x, types[0]), convert(y, types[1])
    if axis is not None:
        x, y = _to_end(x, normal_axis(axis, x.ndim)), _to_end(y, normal_axis(axis, y.ndim))
    core_a, core_b = _CORES[name]
    if name in ("vecdot", "vecmat") and x.aval.dtype.is_complex:
        x = NP.conjugate(x)
    if name == "matmul":
        core_a, core_b = core_a if x.ndim > 1 else "k", core_b if y.ndim > 1 else "k"
    return convert(_product(x, y, core_a, core_b), types[2])


def _to_end(x: Tracer, axis: int) -> Tracer:
    return transpose(x, [d for d in range(x.ndim) if d != axis] + [axis])


def _dot(recorder: Trace, a: Any, b: Any) -> Any:
    x, y = lift(recorder, a), lift(recorder, b)
    if not x.ndim or not y.ndim:
        return NP.multiply(x, y)
    x, y = _common(x, y)
    return dot_general(x, y, ((x.ndim - 1,), (max(y.ndim - 2, 0),)))


def _inner(recorder: Trace, a: Any, b: Any) -> Any:
    x, y = lift(recorder, a), lift(recorder, b)
    if not x.ndim or not y.ndim:
        return NP.multiply(x, y)
    x, y = _common(x, y)
    return dot_general(x, y, ((x.ndim - 1,), (y.ndim - 1,)))


def _vdot(recorder: Trace, a: Any, b: Any) -> Any:
    x, y = (reshape(v, (v.size,)) for v in (lift(recorder, a), lift(recorder, b)))
    return _dot(recorder, NP.conjugate(x) if x.aval.dtype.is_complex else x, y)


def _outer(recorder: Trace, a: Any, b: Any) -> Any:
    x, y = (reshape(v, (v.size,)) for v in (lift(recorder, a), lift(recorder, b)))
    return NP.multiply(reshape(x, (x.size, 1)), y)


def _tensordot(recorder: Trace, a: Any, b: Any, axes: Any = 2) -> Any:
    x, y = _common(lift(recorder, a), lift(recorder, b))
    if isinstance(axes, (int, np.integer)):
        pairs: Any = (range(x.ndim - int(axes), x.ndim), range(int(axes)))
    else:
        pairs = [[p] if isinstance(p, (int, np.integer)) else list(p) for p in axes]
    left = [normal_axis(d, x.ndim) for d in pairs[0]]
    right = [normal_axis(d, y.ndim) for d in pairs[1]]
    if [x.shape[d] for d in left] != [y.shape[d] for d in right]:
        raise ValueError("shape-mismatch for sum")
    return dot_general(x, y, (left, right))


def _kron(recorder: Trace, a: Any, b: Any) -> Any:
    x, y = lift(recorder, a), lift(recorder, b)
    rank = max(x.ndim, y.ndim)
    left, right = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - y.ndim) + y.shape
    spread_x = reshape(x, [n for m in left for n in (m, 1)])
    spread_y = reshape(y, [n for m in right for n in (1, m)])
    product = NP.multiply(spread_x, spread_y)
    return reshape(product, [m * n for m, n in zip(left, right, strict=True)])


# einsum


def _einsum(recorder: Trace, *operands: Any, optimize: Any = False, dtype: Any = None, **rest: Any) -> Any:
    rest = {k: v for k, v in rest.items() if k not in ("casting", "order")}
    if rest or not operands:
        refuse(recorder, f"np.einsum({', '.join(rest)}=)", "use the plain form np.einsum('ij,jk->ik', a, b)")
    if not isinstance(operands[0], str):
        operands = _from_sublists(operands)
    text, values = operands[0].replace(" ", ""), [lift(recorder, o) for o in operands[1:]]
    wanted = np.dtype(dtype) if dtype is not None else np.result_type(*(v.dtype for v in values))
    values = [convert(v, hlo_dtype(wanted, recorder).numpy) for v in values]
    inputs, output = _subscripts(text, values)
    if len(values) == 1 and set(inputs[0]) == set(output):
        return _view_of_letters(values[0], inputs[0], output)
    terms = [_diagonal(v, t) for v, t in zip(values, inputs, strict=True)]
    sizes = _sizes(terms)
    for first, second in _order(terms, output):
        b, a = terms.pop(second), terms.pop(first)
        needed = set(output).union(*(t for _, t in terms))
        terms.append(_pair(*a, *b, needed, sizes))
    value, letters = terms[0]
    value, letters = _sum_letters(value, letters, set(output))
    return transpose(value, [letters.index(c) for c in output])


def _from_sublists(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The form with lists of axis numbers."""
    pairs, rest = len(operands) // 2, len(operands) % 2
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def text(axes: Sequence[Any]) -> str:
        return "".join("..." if a is Ellipsis else letters[a] for a in axes)

    subscripts = ",".join(text(operands[2 * k + 1]) for k in range(pairs))
    return (subscripts + (f"->{text(operands[-1])}" if rest else ""), *operands[: 2 * pairs : 2])


def _subscripts(text: str, values: Sequence[Tracer]) -> tuple[list[str], str]:
    """One letter per dimension; the dimensions of an ellipsis become letters that nobody can type."""
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(values):
        raise ValueError(f"einstein sum {text!r} has {len(inputs)} terms for {len(values)} operands")
    longest = 0
    for k, (term, v) in enumerate(zip(inputs, values, strict=True)):
        named = len(term.replace("...", ""))
        if named > v.ndim or ("..." not in term and named != v.ndim):
            raise ValueError(f"einstein sum subscripts {term!r} do not fit operand {k} of shape {v.shape}")
        longest = max(longest, v.ndim - named if "..." in term else 0)
    spare = [chr(0x3B1 + k) for k in range(longest)]
    full_inputs = []
    for term, v in zip(inputs, values, strict=True):
        count = v.ndim - len(term.replace("...", ""))
        full_inputs.append(term.replace("...", "".join(spare[longest - count :])))
    unknown = sorted(set(right.replace("...", "")) - set(left))
    if unknown:
        raise ValueError(f"einstein sum subscripts {text!r}: output subscript {unknown[0]!r} never appears in an input")
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = "..." * bool(longest) + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return full_inputs, right.replace("...", "".join(spare))


def _diagonal(x: Tracer, term: str) -> tuple[Tracer, str]:
    """A letter that occurs twice in a term: the diagonal, by a mask and a sum."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            first, second = [d for d, k in enumerate(term) if k == c][:2]
            if x.shape[first] != x.shape[second]:
                raise ValueError(f"dimensions for collapsing index {c!r} don't match in shape {x.shape}")
            same = emit("compare", iota(x, x.shape, first), iota(x, x.shape, second), direction="EQ")
            x = fold("add", emit("select", same, x, full(x, x.shape, 0, x.dtype)), (second,), 0)
            term = term[:second] + term[second + 1 :]
    return x, term


def _view_of_letters(x: Tracer, term: str, output: str) -> Tracer:
    """The dimensions in another order, or a diagonal: a view, as in NumPy."""

    def read(base: Tracer) -> Tracer:
        value, letters = _diagonal(base, term)
        return transpose(value, [letters.index(c) for c in output])

    def write(base: Tracer, new: Tracer) -> Tracer:
        letters = sorted(output, key=term.index)
        ordered = transpose(new, [output.index(c) for c in letters])
        places = tuple(term.index(c) for c in letters)
        spread = emit("broadcast", ordered, shape=base.aval, dimensions=places)
        for d, c in enumerate(term):
            if d not in places:
                same = emit("compare", iota(x, x.shape, term.index(c)), iota(x, x.shape, d), direction="EQ")
                spread = emit("select", same, spread, base)
        return spread

    made = Tracer(x.recorder, read(x).instruction)
    steps = [sum(n for n, k in zip(x.layout.steps, term, strict=True) if k == c) for c in output]
    return made.as_view(x, read, write, Strides(made.shape, tuple(steps)))


def _sizes(terms: Sequence[tuple[Tracer, str]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for x, term in terms:
        for c, n in zip(term, x.shape, strict=True):
            if sizes.setdefault(c, n) not in (n, 1) and n != 1:
                raise ValueError(f"einsum: sizes {sizes[c]} and {n} for the same index")
            sizes[c] = max(sizes[c], n)
    return sizes


def _order(terms: Sequence[tuple[Tracer, str]], output: str) -> list[tuple[int, int]]:
    """Pairs of positions to contract, results appended; NumPy's greedy choice for more than two."""
    if len(terms) < 3:
        return [(0, 1)] * (len(terms) - 1)
    plain = {c: chr(97 + k) for k, c in enumerate(dict.fromkeys("".join(t for _, t in terms)))}
    text = ",".join("".join(plain[c] for c in t) for _, t in terms) + "->" + "".join(plain[c] for c in output)
    shadows = [NP.broadcast_to(np.float32(0), x.shape) for x, _ in terms]
    path = NP.einsum_path(text, *shadows, optimize="greedy")[0][1:]
    pairs = []
    for step in path:
        chosen = sorted(step)
        while (
            len(chosen) > 1
        ):  # a step of several operands becomes pairs: the last two, then their result and the rest.
            pairs.append((chosen[-2], chosen[-1]))
            chosen = [*chosen[:-2], len(terms) - len(pairs) - 1]
    return pairs


def _sum_letters(x: Tracer, term: str, needed: set[str]) -> tuple[Tracer, str]:
    gone = tuple(d for d, c in enumerate(term) if c not in needed)
    return fold("add", x, gone, 0) if gone else x, "".join(c for c in term if c in needed)


def _pair(
    x: Tracer, left: str, y: Tracer, right: str, needed: set[str], sizes: Mapping[str, int]
) -> tuple[Tracer, str]:
    """Contract two terms: shared letters that are needed later are batch dimensions, the others are summed."""
    x, left = _sum_letters(_stretch(x, left, right, sizes), left, needed | set(right))
    y, right = _sum_letters(_stretch(y, right, left, sizes), right, needed | set(left))
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in needed]
    gone = [c for c in shared if c not in needed]
    if not gone and not batch and x.aval.dtype.kind != "pred":
        spread = reshape(x, (*x.shape, *(1,) * y.ndim))
        return NP.multiply(spread, y), left + right
    made = dot_general(
        x,
        y,
        ([left.index(c) for c in gone], [right.index(c) for c in gone]),
        ([left.index(c) for c in batch], [right.index(c) for c in batch]),
    )
    rest = [c for c in left if c not in shared] + [c for c in right if c not in shared]
    return made, "".join(batch + rest)


def _stretch(x: Tracer, term: str, other: str, sizes: Mapping[str, int]) -> Tracer:
    """Dimensions of size 1 spread to the size that the letter has elsewhere."""
    return broadcast(x, tuple(sizes[c] if c in other else n for c, n in zip(term, x.shape, strict=True)))


def _multi_dot(recorder: Trace, arrays: Sequence[Any]) -> Any:
    made = lift(recorder, arrays[0])
    for other in arrays[1:]:
        made = _dot(recorder, made, other)
    return made


def _matrix_power(recorder: Trace, a: Any, n: int) -> Any:
    """By squaring."""
    x, power = lift(recorder, a), operator.index(n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    if power < 0:
        x, power = NP.linalg.inv(x), -power
    result: Any = None
    while power:
        if power & 1:
            result = x if result is None else NP.matmul(result, x)
        power >>= 1
        x = NP.matmul(x, x) if power else x
    return NP.broadcast_to(NP.eye(x.shape[-1], dtype=x.dtype, like=x), x.shape) if result is None else result


def _trivial(ufunc: Any) -> Callable[..., Any]:
    return lambda recorder, a, b, axis=-1: ufunc(lift(recorder, a), lift(recorder, b), axis=axis)


GUFUNCS: Mapping[str, Callable[..., Any]] = dict.fromkeys(_CORES, _gufunc)

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "dot": _dot,
    "inner": _inner,
    "vdot": _vdot,
    "outer": _outer,
    "tensordot": _tensordot,
    "kron": _kron,
    "einsum": _einsum,
    "linalg.multi_dot": _multi_dot,
    "linalg.matrix_power": _matrix_power,
    "linalg.matmul": lambda recorder, a, b: NP.matmul(lift(recorder, a), lift(recorder, b)),
    "linalg.outer": _outer,
    "linalg.tensordot": _tensordot,
    "linalg.vecdot": _trivial(np.vecdot),
}
