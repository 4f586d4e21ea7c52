"""One rank of a job whose loops over stencils exchange once for several iterations, and compare with NumPy."""

from __future__ import annotations

import numpy as np

import shardc
from shardc import Mesh
from tests.partitioner.test_wide_halos import STENCILS, traced

MESHES = {2: [Mesh({"x": 2})], 4: [Mesh({"x": 4}), Mesh({"x": 2, "y": 2})]}


def check(name: str, mesh: Mesh) -> None:
    function, count = STENCILS[name]
    arrays = [np.random.default_rng(12).standard_normal((24, 24)) for _ in range(count)]
    every, wide = (traced(function, count, 24, mesh).partition(machine=m) for m in (None, "h100-dgx"))
    messages = [sum(c["count"] for c in p.report()["collectives"]) for p in (every, wide)]
    assert 2 * messages[1] <= messages[0], f"{name}: {messages}"
    results = wide.compile("cpu")(*arrays)
    expected = function(*[x.copy() for x in arrays])
    for got, want in zip(*(x if count == 3 else (x,) for x in (results, expected)), strict=True):
        np.testing.assert_allclose(shardc.gather(got), want, rtol=1e-12, atol=1e-12, err_msg=name)


for mesh in MESHES[shardc.process_count()]:
    for name in STENCILS:
        check(name, mesh)
if shardc.process_index() == 0:
    print("all agree")
