"""Resharding: any layout to any other, the same values on every device, by as few bytes as the partitioner finds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError, InputError
from shardc.launcher.arrays import reshard as module
from shardc.launcher.arrays.make_arrays import array
from shardc.launcher.arrays.placement import as_sharding, layout_of
from tests.launcher.reshard_worker import MESHES, X, cases
from tests.launcher.test_job import mpiexec

MESH = Mesh({"x": 2, "y": 2})


def check(a: shardc.Array, value: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(a), value)
    for shard in a.addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])


def pairs() -> Iterator[tuple[tuple[Mesh, P], tuple[Mesh, P]]]:
    """A slice of all pairs that has every layout on both sides."""
    everything = list(cases())
    yield from ((a, everything[(7 * k + 3) % len(everything)]) for k, a in enumerate(everything))


@pytest.mark.parametrize(("source", "target"), list(pairs()))
def test_by_programs_and_by_copies(source: tuple[Mesh, P], target: tuple[Mesh, P]) -> None:
    a = array(X, source)
    layout = layout_of(X.shape, a._layout.dtype, as_sharding(target, 2))
    check(shardc.reshard(a, target), X)
    check(module._travelled(a, layout), X)


@pytest.mark.full
@pytest.mark.parametrize(("source", "target"), list(product(cases(), repeat=2)))
def test_every_pair(source: tuple[Mesh, P], target: tuple[Mesh, P]) -> None:
    test_by_programs_and_by_copies(source, target)


def test_rows_to_columns_is_one_all_to_all() -> None:
    mesh = Mesh({"x": 4})
    before, after = (as_sharding((mesh, s), 2) for s in (P("x"), P(None, "x")))
    assert before is not None
    assert after is not None
    dtype = array(X)._layout.dtype
    report = module._identity((8, 8), dtype, before, after).partitioned().report()
    assert [c["op"] for c in report["collectives"]] == ["all-to-all"]


@pytest.mark.parametrize("other", MESHES[1:])
def test_between_meshes_nobody_gathers(other: Mesh) -> None:
    before, after = (array(X, (m, P(m.axis_names))) for m in (MESHES[0], other))
    for hop in module._hops(before._layout, after._layout):
        if isinstance(hop, module._Identity):
            compiled = module._identity(X.shape, before._layout.dtype, hop.before, hop.after)
            ops = {c["op"] for c in compiled.partitioned().report()["collectives"]}
            assert "all-gather" not in ops


def test_an_equal_layout_shares_memory() -> None:
    value = np.arange(32, dtype=np.float32).reshape(8, 4)
    a = array(value, (MESH, P("x")), copy=True)
    b = a.reshard((Mesh({"a": 2, "b": 2}), P("a")))
    assert np.shares_memory(a.addressable_shards[0].data, b.addressable_shards[0].data)
    step = shardc.jit(lambda v: v + 1, mesh=MESH, in_shardings=P("x"), out_shardings=P("x"), donate_argnums=0)
    step(a)
    check(b, value)


def test_trees_and_prefixes() -> None:
    tree = {"w": array(X, (MESH, P("x"))), "rest": (array(X[0], (MESH, P())), 3, None)}
    out = shardc.reshard(tree, {"w": P(None, "y"), "rest": (MESH, P("x"))})
    assert out["w"].sharding.num_shards() == (1, 2)
    assert out["rest"][0].sharding.num_shards() == (2,)
    assert out["rest"][1:] == (3, None)
    check(out["w"], X)
    with pytest.raises(AnnotationError, match="but the tree is a dict"):
        shardc.reshard(tree, {"w": P()})
    with pytest.raises(AnnotationError, match="for a single array"):
        shardc.reshard(tree, {"w": [P(), P()], "rest": P()})


def test_a_program_takes_another_layout() -> None:
    step = shardc.jit(lambda a, b: a @ b, mesh=MESH, in_shardings=(P("x"), P(None, "y")))
    square = np.arange(64, dtype=np.float32).reshape(8, 8)
    out = step(array(square, (MESH, P(None, "x"))), array(square, (Mesh({"q": 4}), P("q"))))
    np.testing.assert_array_equal(np.asarray(out), square @ square)


def test_jit_without_shardings_takes_uneven_parts() -> None:
    np.testing.assert_array_equal(np.asarray(shardc.jit(lambda a: a + 1, mesh=MESH)(array(X, (MESH, P("x"))))), X + 1)


def test_one_process_may_take_a_mesh_of_another_size() -> None:
    check(array(X, (MESH, P("x"))).reshard((Mesh({"q": 3}), P(None, "q"))), X)
    check(array(X).reshard((MESH, P("x", "y"))), X)


def test_donated_arrays_are_gone() -> None:
    a = array(X[:6], (MESH, P("x")), copy=True)
    shardc.jit(lambda v: v + 1, mesh=MESH, in_shardings=P("x"), donate_argnums=0)(a)
    with pytest.raises(InputError, match="donated"):
        a.reshard(P())


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_ranks(ranks: int, repository: Path) -> None:
    done = mpiexec(ranks, sys.executable, "-m", "tests.launcher.reshard_worker", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("resharded ")


def test_programs_for_large_arrays_keep_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh({"a": 2})
    before, after = (as_sharding((mesh, s), 2) for s in (P("a"), P(None, "a")))
    assert before is not None
    assert after is not None
    a = array(X, (mesh, P("a")))
    layout = layout_of(X.shape, a._layout.dtype, after)
    compiled = module._identity(X.shape, a._layout.dtype, before, after)
    for kept, remains in ((0, False), (1 << 25, True), (0, False)):
        monkeypatch.setattr(module, "_KEPT", kept)
        check(module._travelled(a, layout), X)
        assert ("driver" in vars(compiled)) == remains
