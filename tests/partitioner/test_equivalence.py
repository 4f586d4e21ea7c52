"""Cutting and joining arrays, and what counts as agreement."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest
from partition_support import layout, random_sharding, with_shardings

from shardc.hlo.errors import InputError
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.equivalence import agree, first_difference, gather_array, scatter_arguments, scatter_array
from shardc.partitioner.partition import partition


def test_scatter_then_gather_is_the_array() -> None:
    rng = random.Random(0)
    for mesh in (Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 3}, (5, 0, 3, 1, 2, 4))):
        for _ in range(100):
            dims = tuple(rng.choice((1, 2, 3, 5, 8)) for _ in range(rng.randint(0, 3)))
            sharding = random_sharding(rng, mesh, len(dims))
            array = np.arange(np.prod(dims, dtype=int)).reshape(dims)
            shards = scatter_array(array, sharding)
            assert all(s.shape == sharding.local_dims(dims) for s in shards)
            np.testing.assert_array_equal(gather_array(shards, sharding, dims), array)


def test_uneven_shards_hold_ceil_parts() -> None:
    shards = scatter_array(np.arange(5), layout(Mesh({"x": 4}), "x"))
    assert [s.tolist() for s in shards] == [[0, 1], [2, 3], [4, 0], [0, 0]]


def test_wrong_arguments_are_input_errors() -> None:
    b = Builder("main")
    mesh = Mesh({"x": 2})
    module = partition(with_shardings(b.build(b.parameter(array_shape("f32", 4))), mesh, lambda i: layout(mesh, "x")))
    for bad in ([], [np.zeros(3, np.float32)], [np.zeros(4)]):
        with pytest.raises(InputError):
            scatter_arguments(module, bad)


def test_floats_agree_within_the_bound() -> None:
    want = np.array([1.0, 2.0], np.float32)
    assert agree(want + np.float32(1e-6), want)
    assert not agree(want + np.float32(1e-3), want)
    reference = np.array([1.001, 2.0])
    loose = agree(want + np.float32(1e-3), want, reference)
    assert loose
    assert loose.bound == pytest.approx(20 * 0.001 / 2, rel=1e-3)
    half = np.array([1.0], ml_dtypes.bfloat16)
    assert agree(half, half)


def test_other_types_agree_only_when_equal() -> None:
    assert agree(np.array([1, 2]), np.array([1, 2]))
    assert not agree(np.array([1, 2]), np.array([1, 3]))
    assert not agree(np.array([1, 2], np.int32), np.array([1, 2], np.int64))


def test_nan_and_infinity_must_stand_where_the_reference_has_them() -> None:
    odd = np.array([np.nan, np.inf, 1.0], np.float32)
    assert agree(odd, odd)
    assert not agree(np.array([0.0, np.inf, 1.0], np.float32), odd)
    assert not agree(np.array([np.nan, -np.inf, 1.0], np.float32), odd)


def test_the_first_difference_is_named() -> None:
    want = np.array([[1.0, np.nan, -4.0], [2.0, 8.0, np.inf]], np.float32)
    assert first_difference(want, want) == ""
    got = want.copy()
    got[0, 2], got[1, 0] = -5.0, 2.125
    assert first_difference(got, want) == "[0,2] is -5.0, not -4.0 (2 of 6 elements differ)"
    assert first_difference(got, want, bound=0.05) == "[0,2] is -5.0, not -4.0"
    got[0, 2], got[0, 1] = -4.0, 0.0
    assert first_difference(got, want, bound=0.05) == "[0,1] is 0.0, not nan"
    assert first_difference(np.array([1, 2, 3]), np.array([1, 2, 4])) == "[2] is 3, not 4"
    assert first_difference(np.array(1.0), np.array(2.0)) == "[] is 1.0, not 2.0"
    assert first_difference(np.zeros(2), np.zeros(3)) == "it is float64[2], not float64[3]"
