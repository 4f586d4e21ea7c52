"""Meshes to try: numbers of devices, limits, factorisations, and the search where there are too many."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.analysis.sweep.meshes import (
    Limit,
    MeshSearch,
    Sizes,
    device_counts,
    factorisations,
    parse_devices,
    parse_limit,
)
from shardc.hlo.errors import InputError


def test_numbers_of_devices() -> None:
    assert parse_devices("8..4096") == tuple(2**k for k in range(3, 13))
    assert parse_devices("24, 8,16") == (8, 16, 24)
    assert parse_devices("3,5..17") == (3, 8, 16)


@pytest.mark.parametrize("text", ["", "8x", "-8", "8..", "..8", "0", "8,,16", "9..15", "8.5", "²", "99999999999"])
def test_numbers_of_devices_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_devices(text)


@pytest.mark.parametrize("devices", [4.0, [4.0], [], None])
def test_numbers_of_devices_in_python(devices: Any) -> None:
    assert device_counts(8) == device_counts([8]) == (8,)
    with pytest.raises(InputError, match="devices="):
        device_counts(devices)


def test_limits() -> None:
    assert [n for n in range(1, 9) if parse_limit("2..4", "").allows(n)] == [2, 3, 4]
    assert [n for n in range(1, 9) if parse_limit("6..", "").allows(n)] == [6, 7, 8]
    assert [n for n in range(1, 9) if parse_limit("..3", "").allows(n)] == [1, 2, 3]
    assert [n for n in range(1, 9) if parse_limit([1, 8], "").allows(n)] == [1, 8]
    assert [n for n in range(1, 9) if parse_limit(4, "").allows(n)] == [4]
    assert parse_limit("4", "") == parse_limit(4, "")


@pytest.mark.parametrize("value", [0, -1, True, "4..2", "a..b", "", [], [0], ["2"], 2.5, None])
def test_limits_that_are_none(value: object) -> None:
    with pytest.raises(InputError, match="limit of an axis"):
        parse_limit(value, "axes.x")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 96), st.integers(1, 3), st.integers(1, 4), st.integers(0, 16))
def test_factorisations_are_all_products_within_limits(devices: int, axes: int, least: int, most: int) -> None:
    names = "abc"[:axes]
    limit = Limit(least, most)
    found = factorisations(devices, names, {"a": limit})
    every = itertools.product(range(1, devices + 1), repeat=axes) if axes < 3 or devices <= 32 else ()
    want = {s for s in every if math.prod(s) == devices and limit.allows(s[0])}
    assert len(set(found)) == len(found)
    assert all(math.prod(s) == devices and limit.allows(s[0]) for s in found)
    if axes < 3 or devices <= 32:
        assert set(found) == want


def searched(meshes: tuple[Sizes, ...], limit: int, cost: Callable[[Sizes], float]) -> dict[Sizes, float]:
    search = MeshSearch(meshes, limit)
    seconds = {mesh: cost(mesh) for mesh in search.first()}
    while following := search.following(seconds):
        assert not set(following) & set(seconds)
        seconds |= {mesh: cost(mesh) for mesh in following}
    return seconds


def test_few_meshes_are_all_tried() -> None:
    meshes = tuple(factorisations(64, "ab", {}))
    assert set(searched(meshes, 7, lambda mesh: abs(mesh[0] - 8))) == set(meshes)


@pytest.mark.parametrize("best", [(1, 4096, 1), (16, 16, 16), (512, 2, 4)])
def test_of_many_meshes_the_search_finds_the_bottom_of_a_valley(best: Sizes) -> None:
    def cost(mesh: Sizes) -> float:
        return sum(abs(math.log2(a / b)) for a, b in zip(mesh, best, strict=True))

    meshes = tuple(factorisations(4096, "abc", {}))
    found = searched(meshes, 60, cost)
    assert len(meshes) == 91
    assert len(found) <= 60
    assert min(found, key=lambda mesh: found[mesh]) == best


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(0, 30))
def test_the_search_never_tries_more_than_its_limit_and_ends_where_nothing_runs(limit: int, running: int) -> None:
    meshes = tuple(factorisations(256, "abc", {}))
    found = searched(meshes, limit, lambda mesh: 1.0 if meshes.index(mesh) < running else math.inf)
    assert len(found) <= limit
    if running == 0:
        assert len(found) == limit
