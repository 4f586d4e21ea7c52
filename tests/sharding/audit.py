"""Running an operation on shards by its factor rule, and comparing with the whole.

For one factor, every tensor that has it is cut into shards along it; a dimension of several factors is cut along the
right one. The operation runs on each shard, with those attributes changed that hold sizes (and indices shifted into
the shard, where indices say which elements are meant). Results of a factor that passes through are the shards of the
whole result; results of a reduction combine to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import ShardcError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import Window
from shardc.hlo.ir.types import tuple_shape
from shardc.sharding.rules import factor_rule
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule

__all__ = ["Case", "admitted", "check", "missing"]

Array = NDArray[Any]
_COMBINE: Mapping[str, Callable[[Array], Array]] = {
    "sum": lambda a: a.sum(0, dtype=a.dtype),
    "max": lambda a: a.max(0),
    "min": lambda a: a.min(0),
    "multiply": lambda a: a.prod(0, dtype=a.dtype),
    "and": lambda a: np.bitwise_and.reduce(a, 0),
    "or": lambda a: np.bitwise_or.reduce(a, 0),
    "xor": lambda a: np.bitwise_xor.reduce(a, 0),
}


@dataclass(frozen=True)
class Case:
    """An instruction whose operands are parameters, their values, and its results' values."""

    name: str
    op: Instruction
    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    rule: FactorRule

    @staticmethod
    def of(name: str, op: Instruction, operands: Sequence[Array]) -> Case:
        """Raises `ShardcError` if the evaluator does not know the operation."""
        arrays = tuple(np.asarray(a) for a in operands)
        parameters = [
            Instruction("parameter", o.shape, (), {"index": n}, name=f"p{n}") for n, o in enumerate(op.operands)
        ]
        own = op.replace(operands=parameters)
        return Case(name, own, arrays, tuple(run(own, arrays)), factor_rule(op))

    def describe(self, factor: int) -> str:
        f = self.rule.factors[factor]
        shapes = ", ".join(str(o.shape) for o in self.op.operands)
        return f"{self.op.opcode} ({self.name}) of {shapes}: factor {factor} of size {f.size}, {f.kind}; {self.rule}"


@dataclass(frozen=True)
class _Cut:
    """One of ``ways`` shards along a factor."""

    factor: int
    ways: int
    index: int


def run(op: Instruction, operands: Sequence[Array]) -> list[Array]:
    root = op if op.shape.is_tuple else Instruction("tuple", tuple_shape(op.shape), (op,))
    body = (*op.operands, op) if root is op else (*op.operands, op, root)
    return evaluate(make_module("m", Computation("main", body, root)), list(operands))


def _span(size: int, cut: _Cut) -> range:
    chunk = -(-size // cut.ways)
    return range(min(cut.index * chunk, size), min((cut.index + 1) * chunk, size))


def _shard(a: Array, tensor: int, case: Case, cut: _Cut) -> Array | None:
    """A tensor's part; None if the factor shares its dimension and does not divide, or is not all of it."""
    for d, indices in enumerate(case.rule.tensors[tensor]):
        if cut.factor not in indices:
            continue
        sizes = [case.rule.factors[f].size for f in indices]
        if math.prod(sizes) != a.shape[d]:
            return None
        at = indices.index(cut.factor)
        if len(sizes) > 1 and sizes[at] % cut.ways:
            return None
        fine = a.reshape(*a.shape[:d], *sizes, *a.shape[d + 1 :])
        piece = np.take(fine, _span(sizes[at], cut), d + at)
        a = piece.reshape(*a.shape[:d], math.prod(piece.shape[d : d + len(sizes)]), *a.shape[d + 1 :])
    return a


def _local_attributes(case: Case, cut: _Cut, operands: Sequence[Array], results: Sequence[Array]) -> dict[str, Any]:
    """Attributes that hold sizes."""
    out = dict(case.op.attrs)
    if case.op.opcode == "slice":
        pairs = zip(out["slice"], operands[0].shape, strict=True)
        out["slice"] = tuple((min(lo, n), min(hi, n), step) for (lo, hi, step), n in pairs)
    if case.op.opcode == "dynamic-slice":
        out["dynamic_slice_sizes"] = results[0].shape
    if case.op.opcode == "gather":
        whole = case.operands[0].shape
        triples = zip(out["slice_sizes"], whole, operands[0].shape, strict=True)
        out["slice_sizes"] = tuple(n if s == size else s for s, size, n in triples)
        for d in out.get("operand_batching_dims") or ():
            out["slice_sizes"] = (*out["slice_sizes"][:d], 1, *out["slice_sizes"][d + 1 :])
    if case.op.opcode == "convolution":
        _local_groups(case, cut, out)
        kernel = [operands[1].shape[d] for d in out["dim_labels"].rhs_spatial]
        if "window" in out:
            sized = (replace(w, size=n) for w, n in zip(out["window"].dims, kernel, strict=True))
            out["window"] = Window(tuple(sized))
    return out


def _local_groups(case: Case, cut: _Cut, attrs: dict[str, Any]) -> None:
    """A factor of groups has the kernel's output features, and features or batch of the input."""
    labels, places = attrs["dim_labels"], set(case.rule.places(cut.factor))
    for key, dim in (("feature_group_count", labels.lhs_feature), ("batch_group_count", labels.lhs_batch)):
        if {(0, dim), (1, labels.rhs_output_feature)} <= places:
            attrs[key] = len(_span(case.rule.factors[cut.factor].size, cut))


def _local(case: Case, cut: _Cut, expected: Sequence[Array]) -> list[Array] | None:
    """The results of one shard; None if the cut does not come out even."""
    operands = []
    for t, a in enumerate(case.operands):
        part = _shard(a, t, case, cut)
        if part is None:
            return None
        operands.append(part)
    if not any(a.size for a in expected):
        return list(expected)
    owned: Array | None = None
    if case.op.opcode in ("gather", "scatter"):
        picked = _picked(case, cut.factor)
        if picked is not None and case.op.opcode == "gather":
            owned = _own_rows(case, cut, operands, picked)
        elif picked is not None and not _own_updates(case, cut, operands, picked):
            return [a.copy() for a in operands[: len(case.results)]]
        if picked is not None and operands[0].size == 0:
            return [np.zeros(a.shape, a.dtype) for a in expected]
    shapes = [leaf.with_dims(a.shape) for leaf, a in zip(case.op.shape.leaves(), expected, strict=True)]
    parameters = [
        Instruction("parameter", p.shape.with_dims(a.shape), (), {"index": n}, name=f"p{n}")
        for n, (p, a) in enumerate(zip(case.op.operands, operands, strict=True))
    ]
    attrs = _local_attributes(case, cut, operands, expected)
    if case.op.opcode == "scan":
        attrs["to_apply"] = _smaller_body(attrs["to_apply"], case, operands)
    shape = tuple_shape(*shapes) if case.op.shape.is_tuple else shapes[0]
    out = run(Instruction(case.op.opcode, shape, parameters, attrs, name="op"), operands)
    return out if owned is None else [np.where(owned, out[0], 0).astype(out[0].dtype)]


def _smaller_body(body: Computation, case: Case, operands: Sequence[Array]) -> Computation:
    """An elementwise body on smaller slices."""
    at = case.op.attrs["dimensions"][0]
    old = tuple(n for d, n in enumerate(case.operands[0].shape) if d != at)
    now = tuple(n for d, n in enumerate(operands[0].shape) if d != at)
    new: dict[Instruction, Instruction] = {}
    for i in body:
        shapes = [s.with_dims(now) if s.is_array and s.dims == old else s for s in i.shape.leaves()]
        shape = tuple_shape(*shapes) if i.shape.is_tuple else shapes[0]
        new[i] = i.replace(shape=shape, operands=[new[o] for o in i.operands])
    return Computation(body.name, new.values(), new[body.root])


# --- indices ------------------------------------------------------------------------------------------------


def _picked(case: Case, factor: int) -> int | None:
    """The operand's dimension that indices choose elements of, if the factor is that."""
    places = list(case.rule.places(factor))
    others = {t for t, _ in places} - {0, *range(len(case.operands), len(case.operands) + len(case.results))}
    if case.op.opcode == "gather":
        return places[0][1] if [t for t, _ in places] == [0] else None
    n = len(case.results)
    inputs = set(range(n)) | set(range(2 * n + 1, 3 * n + 1))
    others = {t for t, _ in places} - inputs
    return None if others or case.rule.factors[factor].kind is not FactorKind.PASS_THROUGH else places[0][1]


def _component(case: Case, indices: Array, dim: int) -> Array | None:
    """A view on the indices into dimension ``dim``."""
    attrs = case.op.attrs
    components = attrs["start_index_map" if case.op.opcode == "gather" else "scatter_dims_to_operand_dims"]
    if dim not in components:
        return None
    vector = attrs["index_vector_dim"]
    return indices if vector == indices.ndim else np.take(indices, components.index(dim), vector)


def _replace_component(case: Case, indices: Array, dim: int, values: Array) -> Array:
    attrs = case.op.attrs
    components = attrs["start_index_map" if case.op.opcode == "gather" else "scatter_dims_to_operand_dims"]
    vector = attrs["index_vector_dim"]
    if vector == indices.ndim:
        return values
    out = np.moveaxis(indices.copy(), vector, -1)
    out[..., components.index(dim)] = values
    return np.moveaxis(out, -1, vector)


def _own_rows(case: Case, cut: _Cut, operands: list[Array], dim: int) -> Array:
    """Shift a gather's indices into the shard; which elements of the result are the shard's."""
    size = case.operands[0].shape[dim]
    span = _span(size, cut)
    component = _component(case, operands[1], dim)
    offset = case.op.attrs["offset_dims"]
    if component is None:
        return np.asarray(cut.index == 0)
    start = np.clip(component, 0, size - case.op.attrs["slice_sizes"][dim])
    operands[1] = _replace_component(case, operands[1], dim, (start - span.start).astype(component.dtype))
    owned = (start >= span.start) & (start < span.stop)
    return np.expand_dims(owned, tuple(offset))


def _own_updates(case: Case, cut: _Cut, operands: list[Array], dim: int) -> bool:
    """Shift a scatter's indices into the shard: foreign ones are out of bounds. False if none is the shard's."""
    n = len(case.results)
    span = _span(case.operands[0].shape[dim], cut)
    component = _component(case, operands[n], dim)
    if component is None:
        return cut.index == 0
    operands[n] = _replace_component(case, operands[n], dim, component - span.start)
    return bool(span)


# --- placements ---------------------------------------------------------------------------------------------


def _identity(kind: str, a: Array) -> Array:
    """What changes nothing when it is combined."""
    if kind in ("max", "min"):
        low = kind == "max"
        bound = (-np.inf if low else np.inf) if a.dtype.kind in "fV" else None
        if bound is None:
            info = np.iinfo(a.dtype)
            bound = info.min if low else info.max
        return np.full(a.shape, bound, a.dtype)
    if kind == "and":
        return np.full(a.shape, True if a.dtype == bool else -1, a.dtype)
    return np.full(a.shape, 1 if kind == "multiply" else 0, a.dtype)


def _counted_once(case: Case, cut: _Cut, kind: str) -> Case:
    """Initial values and scattered-into arrays take part in one shard only."""
    n = len(case.results)
    once = {"reduce": range(n, 2 * n), "scatter": range(n)}.get(case.op.opcode, range(0))
    if not cut.index or not kind:
        return case
    operands = tuple(_identity(kind, a) if t in once else a for t, a in enumerate(case.operands))
    return replace(case, operands=operands)


def _parts(case: Case, factor: int, ways: int, kind: str | None) -> list[list[Array]] | None:
    """The shards' results (``kind`` None: the factor passes through); None if the factor cannot be cut so."""
    out = []
    for index in range(ways):
        cut = _Cut(factor, ways, index)
        if kind is None:
            wanted = [_shard(a, len(case.operands) + t, case, cut) for t, a in enumerate(case.results)]
            if any(w is None for w in wanted):
                return None
            expected = [w for w in wanted if w is not None]
        else:
            expected = list(case.results)
        made = _local(case if kind is None else _counted_once(case, cut, kind), cut, expected)
        if made is None:
            return None
        out.append(made)
    return out


def _same(a: Array, b: Array) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        return bool(np.allclose(a.astype(kind), b.astype(kind), rtol=2e-4, atol=2e-4, equal_nan=True))


def passes(case: Case, factor: int, ways: int) -> bool | None:
    """Are the shards' results the shards of the result? None if the factor cannot be cut so."""
    parts = _parts(case, factor, ways, None)
    if parts is None:
        return None
    for index, made in enumerate(parts):
        cut = _Cut(factor, ways, index)
        for t, (part, whole) in enumerate(zip(made, case.results, strict=True)):
            wanted = _shard(whole, len(case.operands) + t, case, cut)
            if wanted is None or not _same(part, wanted):
                return False
    return True


def reduces(case: Case, factor: int, ways: int, kind: str) -> bool | None:
    """Do the shards' results combine to the result? An unknown combination is the reduction itself, once more."""
    if not kind and (case.op.opcode != "reduce" or not _span(case.rule.factors[factor].size, _Cut(0, ways, ways - 1))):
        return None
    parts = _parts(case, factor, ways, kind)
    if parts is None:
        return None
    columns = [np.stack(c) for c in zip(*parts, strict=True)]
    if kind:
        combined = [_COMBINE[kind](c) for c in columns]
    else:
        initial = case.operands[len(columns) :]
        leaves = [p.shape for p in case.op.operands]
        parameters = [
            Instruction("parameter", s.with_dims(a.shape), (), {"index": n}, name=f"p{n}")
            for n, (s, a) in enumerate(zip(leaves, (*columns, *initial), strict=True))
        ]
        again = case.op.replace(operands=parameters, attrs={**case.op.attrs, "dimensions": (0,)})
        combined = run(again, [*columns, *initial])
    return all(_same(a, b) for a, b in zip(combined, case.results, strict=True))


def admitted(case: Case) -> list[int]:
    """The factors larger than 1 that the rule lets be sharded; values made from nothing are cut, not made in parts."""
    kinds = (FactorKind.PASS_THROUGH, FactorKind.REDUCTION)
    if case.op.opcode in ("constant", "iota", "rng", "rng-bit-generator"):
        return []
    return [f for f, x in enumerate(case.rule.factors) if x.kind in kinds and x.size > 1]


def check(case: Case, ways: Sequence[int] = (2, 3, 4)) -> tuple[int, list[str]]:
    """How many placements were run, and what is wrong."""
    count, wrong = 0, []
    for f in admitted(case):
        reduction = case.rule.factors[f].kind is FactorKind.REDUCTION
        for k in ways:
            good = reduces(case, f, k, case.rule.reduction) if reduction else passes(case, f, k)
            count += good is not None
            if good is False:
                wrong.append(f"{case.describe(f)}, cut {k} ways")
    return count, wrong


def missing(case: Case) -> list[str]:
    """Factors that the rule wants whole although shards would do, and how: with these values and three others."""
    out: list[str] = []
    others: list[Case] = []
    if case.op.opcode == "custom-call":  # a routine does not check that its matrices fit together
        return out
    for f, factor in enumerate(case.rule.factors):
        if factor.kind in (FactorKind.PASS_THROUGH, FactorKind.REDUCTION) or factor.size < 2:
            continue
        for claim, holds in _claims(case, f):
            if not holds(case):
                continue
            others = others or [_redrawn(case, seed) for seed in range(3)]
            if all(holds(other) for other in others) and any(map(_does_something, others)):
                out.append(f"{case.op.opcode}: {_kind(case, f)} {claim}")
    return out


def _does_something(case: Case) -> bool:
    """A scatter whose updates are all out of bounds proves nothing."""
    pairs = zip(case.results, case.operands, strict=False)
    return case.op.opcode != "scatter" or not all(_same(a, b) for a, b in pairs)


def _claims(case: Case, factor: int) -> Iterator[tuple[str, Callable[[Case], bool]]]:
    """What a factor could be, and whether a case agrees."""
    n = len(case.operands)
    tensors = {t for t, _ in case.rule.places(factor)}
    results = set(range(n, n + len(case.results)))
    ways = [k for k in (2, 3, 4, 5) if case.rule.factors[factor].size % k == 0]
    if not ways or tensors <= results:
        return
    if tensors >= results:
        yield "could pass through", lambda c: all(_tried(passes, c, factor, k) for k in ways)
    elif not tensors & results:
        for kind in ("sum", "max", "min"):
            yield (
                f"could be a reduction by {kind}",
                lambda c, kind=kind: all(_tried(reduces, c, factor, k, kind) for k in ways),
            )


def _redrawn(case: Case, seed: int) -> Case:
    """The same operation on other values."""
    r = np.random.default_rng(seed)

    def draw(a: Array) -> Array:
        if a.dtype.kind in "biu":
            return r.integers(0, 2, a.shape).astype(a.dtype)
        return r.standard_normal(a.shape).astype(a.dtype)

    return Case.of(case.name, case.op, [draw(a) for a in case.operands])


def _kind(case: Case, factor: int) -> str:
    n = len(case.operands)
    tensors = dict.fromkeys(t for t, _ in case.rule.places(factor))
    places = " and ".join(f"operand {t}" if t < n else f"result {t - n}" for t in tensors)
    return f"{case.rule.factors[factor].kind} factor of {places}"


def _tried(attempt: Callable[..., bool | None], *arguments: Any) -> bool:
    """A placement that cannot even be run is not missing."""
    try:
        return attempt(*arguments) is True
    except (ShardcError, ValueError, IndexError, ZeroDivisionError):
        return False
