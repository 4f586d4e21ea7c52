"""Which results have fewer parts than propagation found, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardc
from shardc import P
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.sharding.propagate import PropagationOptions, propagate
from shardc.sharding.propagation.whole_results import whole_results

MESH = Mesh({"a": 2, "b": 3})


def shorter(rows: int, columns: int, rest: int, *axes: str | None) -> Module:
    """Rows from ``rest`` on of a matrix that is split over ``axes``."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", rows, columns), "x", sharding=Sharding.of(MESH, *axes))
    y = b.add("slice", x, slice=((rest, rows, 1), (0, columns, 1)), name="y")
    return make_module("m", b.build(b.add("tuple", b.add("sine", y), name="out")), mesh=MESH)


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 5), st.permutations(("a", "b", None)), st.booleans())
def test_only_what_does_not_divide_is_found(
    rows: int, columns: int, rest: int, axes: list[str | None], strict: bool
) -> None:
    module = shorter(rows + rest, columns, rest, *axes[:2])
    outcome = propagate(module, options=PropagationOptions(strict_interface=strict)).outcome
    found = list(whole_results(outcome))
    for result in found:
        kept, wanted = result.given.num_shards(), result.wanted.num_shards()
        n, d = result.shape.dims[result.dimension], result.dimension
        assert kept[d] < wanted[d] <= n
        assert n % wanted[d] != 0
        assert result.padded % wanted[d] == 0 and 0 < result.padded - n < wanted[d]
        assert result.bytes_held == 4 * math.prod(-(-m // k) for m, k in zip((rows, columns), kept, strict=True))
    uneven = propagate(module.with_(uneven_interface=True)).outcome
    assert list(whole_results(uneven)) == []


def test_how_it_is_said() -> None:
    (found,) = whole_results(propagate(shorter(8, 9, 1, "b", "a")).outcome)
    assert (found.name, found.spec, found.padded) == ("result 0", "P('b', 'a')", 9)
    assert found.reason == (
        "each device holds 252 B instead of 60 B, because dimension 0 of size 7 is not divisible by the 3 parts over b"
    )
    both = Sharding(MESH, (DimSharding(), replace(Sharding.of(MESH, ("a", "b")).dims[0])))
    assert replace(found, wanted=both).spec == "P(None, ('a', 'b'))"


@pytest.mark.parametrize("devices", [3, 6, 8, 9, 12])
def test_results_like_their_arguments_stay_split_and_are_not_warned_of(devices: int) -> None:
    """Whether the size divides by a part of the axis makes no difference."""
    x = jax.ShapeDtypeStruct((4100, 4), np.float32)
    program = shardc.from_jax(jax.jit(lambda a: a * 2), x).annotate({"a": P("d")}, mesh={"d": devices})
    partitioned = program.partition()
    report = partitioned.report()
    assert report["wire_bytes"] == 0 and report["results"][0]["sharding"] == "[{d}, {}]"
    assert partitioned.explanation().warnings == ()
