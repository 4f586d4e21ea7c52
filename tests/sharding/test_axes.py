"""The sub-axis algebra, against a brute-force model: a range of an axis is a digit of the position along it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.sharding.axes import sub_axes as alg

MESH = Mesh({"x": 24, "y": 4, "z": 1})
X, Y = AxisRef("x"), AxisRef("y")


@st.composite
def references(draw: st.DrawFn) -> AxisRef:
    name = draw(st.sampled_from(["x", "y"]))
    whole = MESH.axis_size(name)
    low = draw(st.sampled_from([d for d in range(1, whole) if whole % d == 0]))
    size = draw(st.sampled_from([d for d in range(2, whole // low + 1) if whole // low % d == 0]))
    return alg.sub_axis(name, low, low * size, MESH)


def digit(a: AxisRef, position: int) -> int:
    """The value of a sub-axis at a position of its axis."""
    whole = MESH.axis_size(a.name)
    low, high = alg.axis_range(a, MESH)
    return position // (whole // high) % (high // low)


check = settings(max_examples=150, deadline=None, derandomize=True)


@check
@given(references(), references())
def test_prefix_without_overlap_is_a_prefix_that_coexists(a: AxisRef, b: AxisRef) -> None:
    part = alg.prefix_without_overlap(a, b, MESH)
    if part is not None:
        assert alg.is_prefix(part, a, MESH)
        assert not alg.overlaps(part, b, MESH)
        assert alg.can_coexist(part, b, MESH)


@check
@given(references(), references())
def test_contains_means_that_one_digit_decides_the_other(a: AxisRef, b: AxisRef) -> None:
    if a.name != b.name:
        assert not alg.contains(a, b, MESH)
        return
    pairs = {(digit(a, p), digit(b, p)) for p in range(MESH.axis_size(a.name))}
    if alg.contains(a, b, MESH) and alg.can_coexist(a, b, MESH):
        assert len(pairs) == len({p for p, _ in pairs})


@check
@given(references(), references())
def test_overlap_free_references_that_coexist_are_independent(a: AxisRef, b: AxisRef) -> None:
    if a.name == b.name and not alg.overlaps(a, b, MESH) and alg.can_coexist(a, b, MESH):
        pairs = {(digit(a, p), digit(b, p)) for p in range(MESH.axis_size(a.name))}
        assert len(pairs) == a.extent(MESH) * b.extent(MESH)


@check
@given(references(), references())
def test_common_prefix_is_the_longest(a: AxisRef, b: AxisRef) -> None:
    common = alg.common_prefix(a, b, MESH)
    assert common == alg.common_prefix(b, a, MESH)
    if common is not None:
        assert alg.is_prefix(common, a, MESH)
        assert alg.is_prefix(common, b, MESH)


@check
@given(references(), st.data())
def test_split_and_merge_are_inverse(a: AxisRef, data: st.DataObject) -> None:
    whole = a.extent(MESH)
    size = data.draw(st.sampled_from([d for d in range(1, whole + 1) if whole % d == 0]))
    parts = alg.split_at((a,), size, MESH)
    assert parts is not None
    major, minor = parts
    assert alg.extent(major, MESH) == size
    assert alg.merge((*major, *minor), MESH) == (a,)


@check
@given(st.lists(references(), max_size=3), references())
def test_minus_removes_what_is_taken_and_nothing_else(given_axes: list[AxisRef], taken: AxisRef) -> None:
    if not all(alg.can_coexist(a, taken, MESH) for a in given_axes):
        return
    left = alg.minus(given_axes, (taken,), MESH)
    assert not any(alg.overlaps(a, taken, MESH) for a in left)
    assert all(any(alg.contains(a, b, MESH) for a in given_axes) for b in left)


@check
@given(st.lists(st.sampled_from([X, AxisRef("x", 1, 2), AxisRef("x", 2, 2), AxisRef("x", 4, 6), Y]), max_size=4))
def test_atoms_are_equal_or_disjoint_and_say_the_same(axes: list[AxisRef]) -> None:
    fine = alg.atoms([(a,) for a in axes], MESH)
    flat = [a for part in fine for a in part]
    assert all(a == b or not alg.overlaps(a, b, MESH) for a in flat for b in flat)
    assert [alg.merge(part, MESH) for part in fine] == [(a,) for a in axes]


def test_prefix_of_a_list_may_end_within_an_axis() -> None:
    assert alg.is_prefix_list((Y, AxisRef("x", 1, 2)), (Y, X), MESH)
    assert not alg.is_prefix_list((Y, AxisRef("x", 2, 2)), (Y, X), MESH)
    assert not alg.is_prefix_list((AxisRef("y", 1, 2), X), (Y, X), MESH)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ([(AxisRef("w"),)], "no axis 'w'"),
        ([(X,), (X,)], "used twice"),
        ([(AxisRef("x", 1, 4),), (AxisRef("x", 2, 2),)], "used twice"),
        ([(AxisRef("x", 1, 2),), (AxisRef("x", 3, 2),)], "do not nest"),
        ([(AxisRef("x", 1, 5),)], "does not fit"),
    ],
)
def test_bad_axes_are_named(dims: list[tuple[AxisRef, ...]], message: str) -> None:
    with pytest.raises(AnnotationError, match=message) as caught:
        alg.check_axes(Sharding(MESH, tuple(DimSharding(d) for d in dims)), "argument w1")
    assert "argument w1, dimension" in str(caught.value)
