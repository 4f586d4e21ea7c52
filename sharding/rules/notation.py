"""Reading factor rules: Shardy's notation, as users write it on custom calls.

``([i, k], [k, j])->([i, j]) {i=4, j=16, k=8} reduction={k}``. Factors are single letters ``i`` to ``z``, then ``z_1``,
``z_2``, ...; several on one dimension stand side by side, major first. Sizes may be left out where a dimension is one
factor. ``*`` is a dimension that is always whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from shardc.hlo.errors import AnnotationError
from shardc.sharding.rules.factor_rule import Factor, FactorKind, FactorRule, TensorFactors, factor_name

__all__ = ["parse_rule"]

_WRAPPED = re.compile(r"\s*#sdy\.op_sharding_rule<(.*)>\s*", re.DOTALL)
_RULE = re.compile(
    r"\s*\((?P<operands>[^()]*)\)\s*->\s*\((?P<results>[^()]*)\)\s*(?:\{(?P<sizes>[^{}]*)\})?"
    r"(?P<kinds>(?:\s*[a-z_]+\s*=\s*\{[^{}]*\})*)\s*(?:,\s*custom)?\s*"
)
_KIND = re.compile(r"([a-z_]+)\s*=\s*\{([^{}]*)\}")
_TENSOR = re.compile(r"\s*\[([^\[\]]*)\]\s*(?:,|$)")
_FACTOR = re.compile(r"z_(\d+)|[i-z]")
_KINDS = {
    "reduction": FactorKind.REDUCTION,
    "need_replication": FactorKind.NEED_REPLICATION,
    "permutation": FactorKind.PERMUTATION,
}
_EXAMPLE = "write it as ([i, k], [k, j])->([i, j]) {i=4, j=16, k=8} reduction={k}"


def parse_rule(text: str, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> FactorRule:
    """The rule that ``text`` says for tensors of these dimensions; reductions are sums.

    Raises `AnnotationError` for malformed text and for a rule that does not fit: another number of tensors or
    dimensions, a factor without a size, without a place, or twice in one tensor.
    """
    wrapped = _WRAPPED.fullmatch(text)
    found = _RULE.fullmatch(wrapped.group(1) if wrapped else text)
    if found is None:
        raise AnnotationError(f"{text!r} is not a factor rule", fix=_EXAMPLE)
    shapes = (operands, results)
    tensors = [_tensors(found[side], side, d) for side, d in zip(("operands", "results"), shapes, strict=True)]
    sizes = _sizes(found["sizes"] or "", [*tensors[0], *tensors[1]], [*operands, *results])
    kinds, blocked = _kinds(found["kinds"], len(sizes))
    factors = [Factor(n, kinds.get(f, FactorKind.PASS_THROUGH), f in blocked) for f, n in enumerate(sizes)]
    left = [_fill(t, d, factors) for t, d in zip(tensors[0], operands, strict=True)]
    right = [_fill(t, d, factors) for t, d in zip(tensors[1], results, strict=True)]
    reduction = "sum" if FactorKind.REDUCTION in kinds.values() else ""
    return FactorRule(tuple(factors), tuple(left), tuple(right), reduction)


def _fill(tensor: TensorFactors, dims: tuple[int, ...], factors: list[Factor]) -> TensorFactors:
    """The tensor with a whole factor of its own on every dimension that has none."""
    out: list[tuple[int, ...]] = []
    for indices, size in zip(tensor, dims, strict=True):
        if not indices:
            factors.append(Factor(size, FactorKind.NEED_REPLICATION, blocked=True))
        out.append(indices or (len(factors) - 1,))
    return tuple(out)


def _tensors(text: str, side: str, shapes: Sequence[tuple[int, ...]]) -> list[TensorFactors]:
    """The tensors of one side, checked against the shapes there."""
    out: list[TensorFactors] = []
    position = 0
    while position < len(text) and text[position:].strip():
        found = _TENSOR.match(text, position)
        if found is None:
            raise AnnotationError(f"cannot read {text[position:]!r} in a factor rule", fix=_EXAMPLE)
        position = found.end()
        inner = found.group(1).strip()
        out.append(tuple(_dimension(d.strip()) for d in inner.split(",")) if inner else ())
    if len(out) != len(shapes):
        raise AnnotationError(f"the factor rule has {len(out)} {side}, but the operation has {len(shapes)}")
    for n, (tensor, dims) in enumerate(zip(out, shapes, strict=True)):
        place = f"{side[:-1]} {n}"
        if len(tensor) != len(dims):
            raise AnnotationError(f"the factor rule gives {len(tensor)} dimensions to {place}, which has {len(dims)}")
        used = [f for d in tensor for f in d]
        if len(set(used)) != len(used):
            raise AnnotationError(f"the factor rule uses a factor twice in {place}")
    return out


def _dimension(text: str) -> tuple[int, ...]:
    if text == "*":
        return ()
    out: list[int] = []
    position = 0
    while position < len(text):
        found = _FACTOR.match(text, position)
        if found is None:
            raise AnnotationError(f"{text!r} is not a list of factors", fix="factors are i to z, then z_1, z_2, ...")
        out.append(_index(found.group()))
        position = found.end()
    if not out:
        raise AnnotationError("a dimension of the factor rule has no factor", fix="write * for a whole dimension")
    return tuple(out)


def _index(name: str) -> int:
    return 17 + int(name[2:]) if name.startswith("z_") else ord(name) - ord("i")


def _sizes(text: str, tensors: Sequence[TensorFactors], shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Sizes by factor; those not written are the dimension's."""
    given: dict[int, int] = {}
    for item in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = (p.strip() for p in item.partition("="))
        if not _FACTOR.fullmatch(name) or not size.isdigit():
            raise AnnotationError(f"{item!r} is not a factor and its size", fix=_EXAMPLE)
        given[_index(name)] = int(size)
    used = dict.fromkeys(f for tensor in tensors for d in tensor for f in d)
    _infer_sizes(given, tensors, shapes)
    missing = [f for f in used if f not in given]
    count = max([-1, *used, *given]) + 1
    unused = [f for f in range(count) if f not in used]
    if missing or unused:
        what = f"factor {factor_name((missing or unused)[0])} of the rule {'has no size' if missing else 'is unused'}"
        raise AnnotationError(what, fix="use every factor in a tensor, and give its size")
    for d in (d for tensor in tensors for d in tensor):
        if len(d) > 1 and any(given[f] == 1 for f in d):
            raise AnnotationError("a factor of size 1 shares a dimension with others", fix="omit the factor")
    return [given[f] for f in range(count)]


def _infer_sizes(given: dict[int, int], tensors: Sequence[TensorFactors], shapes: Sequence[tuple[int, ...]]) -> None:
    for tensor, dims in zip(tensors, shapes, strict=True):
        for indices, size in zip(tensor, dims, strict=True):
            if len(indices) == 1:
                given.setdefault(indices[0], size)
    for tensor, dims in zip(tensors, shapes, strict=True):
        for indices, size in zip(tensor, dims, strict=True):
            unknown = [f for f in indices if f not in given]
            known = math.prod(given[f] for f in indices if f in given)
            if len(unknown) == 1 and known and size % known == 0:
                given[unknown[0]] = size // known


def _kinds(text: str, count: int) -> tuple[Mapping[int, FactorKind], frozenset[int]]:
    """The kinds of the factors that do not pass through, and the factors that propagation leaves alone."""
    kinds: dict[int, FactorKind] = {}
    blocked: frozenset[int] = frozenset()
    for label, members in _KIND.findall(text):
        names = [m.strip() for m in members.split(",")]
        if any(not _FACTOR.fullmatch(n) or _index(n) >= count for n in names):
            raise AnnotationError(f"{label}={{{members}}} names an unknown factor")
        indices = frozenset(_index(n) for n in names)
        if label == "blocked_propagation":
            blocked = indices
        elif label not in _KINDS:
            known = ", ".join([*_KINDS, "blocked_propagation"])
            raise AnnotationError(f"unknown part {label!r} of a factor rule", fix=f"known: {known}")
        elif indices & set(kinds):
            raise AnnotationError(f"factor {factor_name(min(indices & set(kinds)))} of the rule has two kinds")
        else:
            kinds.update(dict.fromkeys(indices, _KINDS[label]))
    return kinds, blocked
