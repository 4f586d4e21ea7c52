"""Every step of random programs on dimensions of sizes 0, 1 and 2 (some 3), over axes of 2 to 7: most shards are empty.

Whatever raises, in propagation, partitioning, evaluating or compiling, fails.
"""

from __future__ import annotations

import numpy as np
import pytest
from fuzz_cases import arguments, check_case, check_compiled
from fuzz_ops import STEPS
from fuzz_small import make_small_case
from partition_support import check, layout, with_shardings

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape

BLOCK = 50


def check_block(first: int, count: int) -> None:
    for seed in range(first, first + count):
        try:
            check_case(make_small_case(seed), seed)
        except Exception as e:
            e.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("block", range(len(STEPS) * 2 // BLOCK + 1))
def test_small_programs(block: int) -> None:
    check_block(BLOCK * block, BLOCK)


@pytest.mark.full
@pytest.mark.parametrize("block", range(4, 240))
def test_many_small_programs(block: int) -> None:
    check_block(BLOCK * block, BLOCK)


@pytest.mark.parametrize("seed", range(50_000, 50_012))
def test_small_programs_compiled(seed: int) -> None:
    check_compiled(make_small_case(seed), seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(51_000, 52_000))
def test_many_small_programs_compiled(seed: int) -> None:
    check_compiled(make_small_case(seed), seed)


def chain() -> Computation:
    """``(a @ b.T @ b, b.sum(0))``."""
    b = Builder("main")
    x, y = (b.parameter(array_shape("f32", 2, 1)) for _ in range(2))
    turned = b.add("transpose", y, dimensions=(1, 0))
    square = b.add("dot", x, turned, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    product = b.add("dot", square, y, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    zero = b.constant(0.0, "f32")
    total = b.add("reduce", y, zero, dimensions=(0,), to_apply=binary_computation("add", "f32"))
    return b.build(b.add("tuple", product, total))


def test_a_result_that_another_member_of_its_kernel_cuts() -> None:
    """Such a kernel has no rows: its result is read at two places."""
    mesh = Mesh({"x": 3})
    places = {"p0": (None, "x"), "p1": ("x", None), "transpose": (None, None), "reduce": ("x",)}

    def where(i: Instruction) -> Sharding:
        return layout(mesh, *places.get(i.name, ("x", None)[: i.shape.rank]))

    module = with_shardings(chain(), mesh, where)
    check(module)
    check_compiled(module)


def test_a_slice_of_no_elements() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 2, 2))
    part = b.add("slice", x, slice=((1, 2, 1), (1, 1, 1)))
    mesh = Mesh({"x": 2, "y": 2})
    local = check(with_shardings(b.build(part), mesh, lambda i: layout(mesh, "x", "y")))
    assert [i.opcode for i in local.entry] == ["parameter", "constant", "broadcast"]
    assert np.asarray(arguments(local)[0]).shape == (1, 1)
