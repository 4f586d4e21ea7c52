"""One rank of a job that finds eigenvalues of split matrices and of batches, and compares with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P

Array = np.ndarray[Any, Any]

#: Mesh and how rows lie on it, by the number of ranks.
PLACES: dict[int, list[tuple[Mesh, Any]]] = {
    2: [(Mesh({"x": 2}), P("x"))],
    4: [(Mesh({"x": 4}), P("x")), (Mesh({"x": 2, "y": 2}), P(("y", "x")))],
}
MATRICES = [("float32", 256), ("complex128", 259)]
#: Errors in units of the type's epsilon, relative to the norm.
BOUND = 200


def hermitian(dtype: str, *dims: int) -> Array:
    rng = np.random.default_rng(dims[-1])
    a = rng.standard_normal((*dims, dims[-1]))
    if dtype.startswith("c"):
        a = a + 1j * rng.standard_normal(a.shape)
    made: Array = ((a + a.conj().swapaxes(-1, -2)) / 2).astype(dtype)
    return made


def compare(name: str, a: Array, w: Array, v: Array) -> None:
    want, eps = np.linalg.eigvalsh(a), np.finfo(w.dtype).eps
    norm = abs(want).max()
    assert w.dtype == want.dtype, name
    assert abs(w - want).max() <= BOUND * eps * norm, name
    assert abs(a @ v - v * w[..., None, :]).max() <= BOUND * eps * norm, name
    assert abs(v.conj().swapaxes(-1, -2) @ v - np.eye(a.shape[-1])).max() <= BOUND * eps, name


def check_blocks(dtype: str, n: int, mesh: Mesh, spec: Any) -> None:
    """In less memory than whole matrices take, so that blocks of rows go round; all ranks end after the same sweep."""
    a, name = hermitian(dtype, n), f"{dtype} of {n} on {mesh}"
    traced = shardc.trace(np.linalg.eigh, a, mesh=mesh, in_shardings=(spec,)).propagate()
    program = traced.partition(memory=int((2.4 if mesh.size == 2 else 2.15) * a.nbytes))
    assert "collective-permute" in {c["op"] for c in program.report()["collectives"]}, name
    run = program.compile("cpu")
    repeated = hermitian(dtype, n)
    q = np.linalg.qr(repeated)[0]
    repeated[:] = (q * np.repeat([1, -1, 2, 3], [n - 90, 30, 30, 30])) @ q.conj().T
    for given in (a, repeated):
        compare(name, given, *(np.asarray(shardc.gather(x)) for x in run(given)))
    a[3, 5] = a[5, 3] = np.nan
    for x in run(a):
        assert np.isnan(np.asarray(shardc.gather(x))).all(), name


def check_batch(mesh: Mesh, spec: Any) -> None:
    """Matrices that lie on a device each are sent nowhere, and neither are their eigenvalues; 7 lie unevenly."""
    for count in (8, 7):
        a, name = hermitian("float32", count, 40), f"{count} matrices on {mesh}"
        program = shardc.trace(np.linalg.eigh, a, mesh=mesh, in_shardings=(spec,)).propagate().partition()
        assert program.report()["collectives"] == [], name
        w, v = program.compile("cpu")(a)
        assert w.sharding.dims[0] == v.sharding.dims[0] == program.module.parameters[0].sharding.dims[0], name
        compare(name, a, *(np.asarray(shardc.gather(x)) for x in (w, v)))


for mesh, spec in PLACES[shardc.process_count()]:
    check_batch(mesh, spec)
    for dtype, n in MATRICES:
        check_blocks(dtype, n, mesh, spec)
if shardc.process_index() == 0:
    print("all agree")
