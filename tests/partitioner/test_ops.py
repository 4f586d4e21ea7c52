"""Every operation family under random shardings of every value: partitioned equals unpartitioned, exactly.

Meshes are even, odd and permuted, sizes uneven, padding of arguments is poisoned (NaN, largest integer).
"""

from __future__ import annotations

import random

import pytest
from partition_programs import PROGRAMS
from partition_support import check, random_sharding, with_shardings

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.mesh import Mesh

MESHES = (
    Mesh({"x": 2, "y": 2}),
    Mesh({"x": 2, "y": 4}),
    Mesh({"x": 3}),
    Mesh({"x": 2, "y": 3}),
    Mesh({"x": 2, "y": 2, "z": 2}),
    Mesh({"x": 2, "y": 2}, (2, 0, 3, 1)),
)


def run(name: str, seed: int) -> None:
    r = random.Random(f"{name} {seed}")
    mesh = r.choice(MESHES)
    b = Builder("main")
    computation = b.build(PROGRAMS[name](r, b))
    module = with_shardings(computation, mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    check(module, seed=seed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_partitioned_equals_unpartitioned(name: str) -> None:
    for seed in range(12):
        run(name, seed)


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_partitioned_equals_unpartitioned_at_length(name: str) -> None:
    for seed in range(12, 400):
        run(name, seed)
