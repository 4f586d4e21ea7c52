"""Running totals along split dimensions, and what programs make of them."""

from __future__ import annotations

import pytest
from partition_support import check, layout, with_shardings

from shardc.hlo.build import Builder
from shardc.hlo.mesh import Mesh
from shardc.hlo.types import array_shape

MESH = Mesh({"x": 4})


@pytest.mark.parametrize("start", [0, 3, 7])
def test_a_slice_of_no_elements_of_a_split_dimension(start: int) -> None:
    """As recursive halving writes them for odd lengths."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", 7, 2))
    none = b.add("slice", x, slice=((start, start, 1), (0, 2, 1)))
    made = b.build(b.add("concatenate", x, none, dimensions=(0,)))
    check(with_shardings(made, MESH, lambda i: layout(MESH, "x" if i.shape.dims[0] else None, None)))
    made = b.build(none)
    check(with_shardings(made, MESH, lambda i: layout(MESH, "x", None)))
