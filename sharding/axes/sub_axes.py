"""The algebra of axes and sub-axes.

An axis of size n covers the range 1..n; the sub-axis ``x:(pre)size`` covers ``pre..pre*size`` of it (major to minor).
Everything here takes and returns canonical references: a reference that covers its whole axis is the full axis, and
neighbouring parts in a list are merged. Sizes that do not divide each other cannot coexist: ``x:(1)2`` and ``x:(1)3``
of an axis of size 6 cut it in ways that do not nest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding

__all__ = [
    "Axes",
    "atoms",
    "axis_range",
    "can_coexist",
    "canonical",
    "check_axes",
    "common_prefix",
    "contains",
    "extent",
    "is_prefix",
    "is_prefix_list",
    "merge",
    "minus",
    "overlaps",
    "prefix_of_size",
    "prefix_without_overlap",
    "prefix_without_overlaps",
    "split_at",
    "sub_axis",
    "without_prefix",
]

Axes = tuple[AxisRef, ...]


def axis_range(axis: AxisRef, mesh: Mesh) -> tuple[int, int]:
    """The range ``(pre, pre * size)`` that a reference covers."""
    return (1, mesh.axis_size(axis.name)) if axis.is_full else (axis.pre, axis.pre * axis.size)


def sub_axis(name: str, low: int, high: int, mesh: Mesh) -> AxisRef:
    """The canonical reference to the range ``low..high`` of an axis."""
    return AxisRef(name) if low == 1 and high == mesh.axis_size(name) else AxisRef(name, low, high // low)


def canonical(axis: AxisRef, mesh: Mesh) -> AxisRef:
    """A sub-axis that covers its axis becomes the full axis."""
    return axis if axis.is_full else sub_axis(axis.name, *axis_range(axis, mesh), mesh)


def extent(axes: Iterable[AxisRef], mesh: Mesh) -> int:
    """Number of shards that a list of axes makes."""
    return math.prod(a.extent(mesh) for a in axes)


def overlaps(a: AxisRef, b: AxisRef, mesh: Mesh) -> bool:
    """Whether both use a common part of the same axis."""
    if a.name != b.name:
        return False
    if a.is_full or b.is_full:
        return True
    return a.pre < b.pre * b.size and b.pre < a.pre * a.size


def contains(a: AxisRef, b: AxisRef, mesh: Mesh) -> bool:
    """Whether ``b`` is within ``a``."""
    if a.name != b.name:
        return False
    if a.is_full or a == b:
        return True
    (lo, hi), (other_lo, other_hi) = axis_range(a, mesh), axis_range(b, mesh)
    return lo <= other_lo and other_hi <= hi


def can_coexist(a: AxisRef, b: AxisRef, mesh: Mesh) -> bool:
    """Whether the cuts of both nest, so that one tensor (or two that meet) can use them."""
    if a.name != b.name or a.is_full or b.is_full:
        return True
    marks = sorted({*axis_range(a, mesh), *axis_range(b, mesh)})
    return all(hi % lo == 0 for lo, hi in pairwise(marks))


def is_prefix(a: AxisRef, b: AxisRef, mesh: Mesh) -> bool:
    """Whether ``a`` is a major part of ``b`` (or ``b`` itself)."""
    return a == b or (a.name == b.name and common_prefix(a, b, mesh) == a)


def common_prefix(a: AxisRef, b: AxisRef, mesh: Mesh) -> AxisRef | None:
    """The longest reference that is a major part of both."""
    if a == b:
        return a
    if a.name != b.name:
        return None
    (lo, hi), (other_lo, other_hi) = axis_range(a, mesh), axis_range(b, mesh)
    if lo != other_lo or max(hi, other_hi) % min(hi, other_hi):
        return None
    return a if hi <= other_hi else b


def prefix_without_overlap(a: AxisRef, b: AxisRef, mesh: Mesh) -> AxisRef | None:
    """The longest major part of ``a`` that does not overlap ``b`` and whose cuts nest with those of ``b``."""
    if a.name != b.name:
        return a
    if not can_coexist(a, b, mesh):
        return None
    if not overlaps(a, b, mesh):
        return a
    low, other = axis_range(a, mesh)[0], axis_range(b, mesh)[0]
    if low >= other or other % low:
        return None
    return sub_axis(a.name, low, other, mesh)


def prefix_without_overlaps(a: AxisRef, others: Iterable[AxisRef], mesh: Mesh) -> AxisRef | None:
    """`prefix_without_overlap` with every one of ``others``."""
    part: AxisRef | None = a
    for other in others:
        if part is None:
            return None
        part = prefix_without_overlap(part, other, mesh)
    return part


def prefix_of_size(a: AxisRef, size: int, mesh: Mesh) -> AxisRef | None:
    """The major part of ``a`` with ``size`` shards; None if that is 1 or does not divide."""
    whole = a.extent(mesh)
    if size == whole:
        return a
    if size <= 1 or whole % size:
        return None
    low = axis_range(a, mesh)[0]
    return sub_axis(a.name, low, low * size, mesh)


def without_prefix(a: AxisRef, prefix: AxisRef, mesh: Mesh) -> AxisRef | None:
    """What is left of ``a`` after its major part ``prefix``; None if nothing is."""
    (_, middle), (_, high) = axis_range(prefix, mesh), axis_range(a, mesh)
    return None if middle == high else sub_axis(a.name, middle, high, mesh)


def merge(axes: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """The canonical list: references that continue the one before are joined with it."""
    out: list[AxisRef] = []
    for a in axes:
        if out and not a.is_full and not out[-1].is_full and out[-1].name == a.name:
            low, high = axis_range(out[-1], mesh)
            if high == a.pre:
                out[-1] = sub_axis(a.name, low, high * a.size, mesh)
                continue
        out.append(canonical(a, mesh))
    return tuple(out)


def is_prefix_list(a: Sequence[AxisRef], b: Sequence[AxisRef], mesh: Mesh) -> bool:
    """Whether list ``b`` starts with list ``a``. The last axis of ``a`` may be a major part of its counterpart."""
    if len(a) > len(b):
        return False
    if not a:
        return True
    return tuple(a[:-1]) == tuple(b[: len(a) - 1]) and is_prefix(a[-1], b[len(a) - 1], mesh)


def split_at(axes: Sequence[AxisRef], size: int, mesh: Mesh) -> tuple[Axes, Axes] | None:
    """Cut a list into a major part with ``size`` shards and the rest; None if the sizes do not divide.

    Example: ``split_at((x,), 2, mesh)`` with x of size 8 is ``((x:(1)2,), (x:(2)4,))``.
    """
    major: list[AxisRef] = []
    for i, a in enumerate(axes):
        if size == 1:
            return tuple(major), tuple(axes[i:])
        whole = a.extent(mesh)
        if size % whole == 0:
            major.append(a)
            size //= whole
            continue
        prefix = prefix_of_size(a, size, mesh)
        if prefix is None:
            return None
        rest = without_prefix(a, prefix, mesh)
        assert rest is not None
        return (*major, prefix), (rest, *axes[i + 1 :])
    return (tuple(major), ()) if size == 1 else None


def minus(axes: Iterable[AxisRef], taken: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """The parts of ``axes`` that no reference in ``taken`` uses, in order."""
    out: list[AxisRef] = list(axes)
    for t in taken:
        left: list[AxisRef] = []
        for a in out:
            if not overlaps(a, t, mesh):
                left.append(a)
                continue
            (lo, hi), (cut_lo, cut_hi) = axis_range(a, mesh), axis_range(t, mesh)
            left += [sub_axis(a.name, m, n, mesh) for m, n in ((lo, cut_lo), (cut_hi, hi)) if m < n]
        out = left
    return tuple(out)


def atoms(lists: Iterable[Iterable[AxisRef]], mesh: Mesh) -> list[Axes]:
    """The same lists over the finest common sub-axes: any two references are then equal or disjoint.

    Example: ``[(x,), (x:(1)2,)]`` with x of size 4 becomes ``[(x:(1)2, x:(2)2), (x:(1)2,)]``.
    """
    given = [tuple(axes) for axes in lists]
    cuts: dict[str, set[int]] = {}
    for a in (a for axes in given for a in axes):
        cuts.setdefault(a.name, set()).update(axis_range(a, mesh))
    out: list[Axes] = []
    for axes in given:
        fine: list[AxisRef] = []
        for a in axes:
            lo, hi = axis_range(a, mesh)
            marks = sorted(m for m in cuts[a.name] if lo <= m <= hi)
            fine += [sub_axis(a.name, m, n, mesh) for m, n in pairwise(marks)] or [a]
        out.append(tuple(fine))
    return out


def check_axes(sharding: Sharding, where: str = "") -> None:
    """Raise `AnnotationError` for an axis that is unknown, used twice or manual too, or a sub-axis that is none."""
    mesh = sharding.mesh
    used: list[tuple[AxisRef, str]] = []
    places = [(f"dimension {i}", d.axes) for i, d in enumerate(sharding.dims)]
    places += [("replicated axes", sharding.replicated), ("unreduced axes", sharding.unreduced)]
    places += [("manual axes", tuple(AxisRef(n) for n in sharding.manual))]
    for place, axes in places:
        at = f"{where}, {place}" if where else place
        for a in axes:
            _check_reference(a, mesh, at)
            for other, elsewhere in used:
                if overlaps(a, other, mesh):
                    raise AnnotationError(
                        f"axis {a} is used twice" + ("" if a == other else f" (as {other} before)"),
                        where=f"{at} (and {elsewhere})" if elsewhere != place else at,
                        fix="one value can use each mesh axis once",
                    )
                if not can_coexist(a, other, mesh):
                    raise AnnotationError(
                        f"sub-axes {other} and {a} do not nest", where=at, fix="choose sizes that divide each other"
                    )
            used.append((a, place))


def _check_reference(a: AxisRef, mesh: Mesh, where: str) -> None:
    if a.name not in mesh.axis_names:
        raise AnnotationError(
            f"mesh has no axis {a.name!r}",
            where=where,
            fix=f"its axes are {', '.join(mesh.axis_names) or '(none)'}",
        )
    whole = mesh.axis_size(a.name)
    if not a.is_full and (a.pre < 1 or a.size < 1 or whole % (a.pre * a.size)):
        raise AnnotationError(
            f"sub-axis {a} does not fit axis {a.name!r} of size {whole}",
            where=where,
            fix="pre * size must divide the size of the axis",
        )
