"""Checkpoints: what was saved comes back to the bit, on other meshes, read no more than needed; damage is named."""

from __future__ import annotations

import collections
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import shardc
from shardc import Mesh, P
from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.errors import EnvironmentProblem, InputError, ShardcError, UnsupportedError
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import DTYPES
from shardc.launcher.arrays.pieces import volume, whole_region
from shardc.launcher.checkpoint.index import Index
from shardc.launcher.checkpoint.load import Reader
from shardc.launcher.checkpoint.save import tile_of

MESH = Mesh({"x": 2, "y": 2})
X = np.arange(35, dtype=np.float32).reshape(7, 5)
Moments = collections.namedtuple("Moments", "mu nu")


@dataclasses.dataclass
class State:
    params: Any
    count: int


def same(a: Any, b: Any) -> None:
    if "key<" in str(getattr(a, "dtype", "")):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    if hasattr(a, "dtype"):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    else:
        assert type(a) is type(b)
        assert a == b


def on(value: np.ndarray, *spec: Any) -> shardc.Array:
    return shardc.array(value, (MESH, P(*spec)))


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if d.kind not in ("token", "tuple", "opaque")])
def test_every_element_type(name: str, tmp_path: Path) -> None:
    value = (X % 3).astype(DTYPES[name].numpy)
    saved = {"sharded": on(value, "y", "x"), "plain": value, "scalar": on(value[1, 1]), "none": on(value[:0])}
    shardc.save_checkpoint(tmp_path, saved, step=0)
    found = shardc.load_checkpoint(tmp_path).tree
    assert list(found) == list(saved)
    for key, array in saved.items():
        same(found[key], array)
    assert isinstance(found["plain"], np.ndarray)
    assert found["sharded"].sharding == saved["sharded"].sharding


def full_tree() -> dict[str, Any]:
    return {
        "params": {"w": on(X, "x"), "layers": [on(X[0]), on(X[:, 0], ("x", "y"))]},
        "opt": (Moments(on(X.astype(ml_dtypes.bfloat16), "y"), np.ones(3)), State(jnp.arange(4), 3)),
        "rng": jax.random.split(jax.random.key(3, impl="rbg"), 4),
        "plain": [None, True, -3, 2**70, 0.1, float("inf"), 1 - 2j, "text", ()],
        "numbered": {7: np.float16(2), 3: 1},
    }


def leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda x: x is None or isinstance(x, State))


def test_trees(tmp_path: Path) -> None:
    tree = full_tree()
    shardc.save_checkpoint(tmp_path, tree, step=12, metadata={"rate": 0.1})
    found = shardc.load_checkpoint(tmp_path, like=tree)
    assert (found.step, found.metadata, found.path) == (12, {"rate": 0.1}, tmp_path / "step-00000012")
    assert isinstance(found.tree["opt"][0], Moments)
    assert isinstance(found.tree["opt"][1], State)
    for a, b in zip(leaves(tree), leaves(found.tree), strict=True):
        if isinstance(a, State):
            same(np.asarray(a.params), b.params)
            assert a.count == b.count
        else:
            same(a, b)
    alone = shardc.load_checkpoint(tmp_path).tree
    assert alone["plain"] == tree["plain"]
    assert list(alone["opt"][0]) == ["mu", "nu"]
    same(alone["rng"], tree["rng"])


def test_part_of_a_tree(tmp_path: Path) -> None:
    shardc.save_checkpoint(tmp_path, full_tree(), step=1)
    found = shardc.load_checkpoint(
        tmp_path, like={"params": {"w": jax.ShapeDtypeStruct(X.shape, X.dtype)}, "opt": None}
    )
    same(found.tree["params"]["w"], X)
    assert found.tree["opt"] is None
    assert found.bytes_read == X.nbytes
    with pytest.raises(InputError, match=r"no params\.v") as e:
        shardc.load_checkpoint(tmp_path, like={"params": {"v": X}})
    assert e.value.fix == "at this place it has w, layers; omit the entry from like=, or give None for it"
    with pytest.raises(InputError, match=r"params.w is f32\[7, 5\] in the checkpoint, but float32\[5, 7\] in like="):
        shardc.load_checkpoint(tmp_path, like={"params": {"w": X.T}})
    with pytest.raises(InputError, match="saved as a leaf"):
        shardc.load_checkpoint(tmp_path, like={"params": {"w": [X]}})
    with pytest.raises(InputError, match="saved as a tree of 2 entries"):
        shardc.load_checkpoint(tmp_path, like={"params": X})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_across_meshes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any mesh and sharding to any other, for tensors of any shape: the same bits."""
    folder = tmp_path_factory.mktemp("across")
    dims = tuple(data.draw(st.lists(st.integers(0, 9), max_size=3)))
    value = np.random.default_rng(0).integers(0, 255, dims).astype(np.uint8)

    def drawn() -> tuple[Mesh, P]:
        mesh = Mesh({"a": data.draw(st.integers(1, 4)), "b": data.draw(st.integers(1, 3))})
        free, spec = ["a", "b"], []
        for _ in dims:
            taken = data.draw(st.integers(0, len(free)))
            spec.append(tuple(free[:taken]) or None)
            free = free[taken:]
        return mesh, P(*spec)

    shardc.save_checkpoint(folder, shardc.array(value, drawn()), step=0)
    target = drawn()
    found = shardc.load_checkpoint(folder, shardings=target).tree
    np.testing.assert_array_equal(np.asarray(found), value)
    for shard in found.addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])


def test_which_sharding_counts(tmp_path: Path) -> None:
    shardc.save_checkpoint(tmp_path, {"a": on(X, "x"), "b": X}, step=0)
    wider = Mesh({"x": 4, "z": 2})
    assert shardc.load_checkpoint(tmp_path).tree["a"].sharding == on(X, "x").sharding
    assert shardc.load_checkpoint(tmp_path, mesh=wider).tree["a"].sharding.num_shards() == (4, 1)
    like = {"a": on(X, None, "y"), "b": X}
    assert shardc.load_checkpoint(tmp_path, like=like).tree["a"].sharding == like["a"].sharding
    found = shardc.load_checkpoint(tmp_path, like=like, shardings={"a": P("y"), "b": (wider, P("z"))}).tree
    assert found["a"].sharding == on(X, "y").sharding
    assert found["b"].sharding.num_shards() == (2, 1)
    with pytest.raises(InputError, match="a was saved as"):
        shardc.load_checkpoint(tmp_path, mesh=Mesh({"q": 2}))


def test_shardings_of_all_kinds_are_kept(tmp_path: Path) -> None:
    shuffled = Mesh({"a": 4, "b": 2}, (7, 0, 3, 2, 1, 6, 5, 4))
    halves = Sharding(shuffled, (DimSharding((AxisRef("a", 2, 2),)), DimSharding((AxisRef("b"), AxisRef("a", 1, 2)))))
    shardc.save_checkpoint(tmp_path, {"a": shardc.array(X, halves)}, step=0)
    found = shardc.load_checkpoint(tmp_path).tree
    assert found["a"].sharding == halves
    same(found["a"], X)


def test_other_tools_read_the_files(tmp_path: Path) -> None:
    path = shardc.save_checkpoint(tmp_path, {"w": on(X, "x"), "b": on(X[0])}, step=0)
    (file,) = path.glob("*.safetensors")
    found = load_file(file)
    assert sorted(found) == ["b", "w[0:4,0:5]", "w[4:7,0:5]"]
    np.testing.assert_array_equal(found["w[4:7,0:5]"], X[4:])


def reader(path: Path, verify: bool = True) -> Reader:
    return Reader(path, Index.read(path), verify, None, LocalTransport())


def test_only_needed_parts_are_read(tmp_path: Path) -> None:
    """Bytes outside of what is needed are counted, and may be damaged."""
    value = np.arange(1 << 22, dtype=np.float32).reshape(2048, 2048)
    path = shardc.save_checkpoint(tmp_path, {"w": shardc.array(value, (Mesh({"x": 2}), P("x")))}, step=0)
    tensor = Index.read(path).tensors["w"]
    assert [s.tile for s in tensor.shards] == [(1024, 1024)] * 2
    region = (slice(1024, 1500), slice(1024, 2048))
    (file,) = path.glob("*.safetensors")
    damaged = bytearray(file.read_bytes())
    start = len(damaged) - value.nbytes
    rows = np.frombuffer(damaged, np.float32, offset=start).reshape(value.shape)
    rows[:1024] = rows[:, :1024] = rows[1500:] = 0
    rows[1500:] = value[1500:]  # the tile's own
    file.write_bytes(damaged)
    for verify, read in ((True, 4 << 20), (False, 476 * 1024 * 4)):
        part = reader(path, verify)
        out = np.zeros((476, 1024), np.float32)
        source = part_source(part, "w")
        for piece in source.pieces(region):
            here = tuple(slice(p.start - r.start, p.stop - r.start) for p, r in zip(piece.region, region, strict=True))
            if verify:
                out[...] = piece.data[:476]
            else:
                out[here] = piece.data
        np.testing.assert_array_equal(out, value[region])
        assert part.bytes_read == read
    with pytest.raises(InputError, match="checksum"):
        list(part_source(reader(path), "w").pieces(whole_region(value.shape)))


def part_source(of: Reader, name: str) -> Any:
    from shardc.launcher.checkpoint.load import _Source

    return _Source(of, name, of.index.tensors[name])


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 5000), max_size=4), st.sampled_from([1, 2, 4, 16]))
def test_tiles_are_small(dims: list[int], nbytes: int) -> None:
    tile = tile_of(tuple(dims), nbytes)
    assert volume(whole_region(tile)) * nbytes <= 4 << 20
    assert all(1 <= t <= max(1, n) for t, n in zip(tile, dims, strict=True))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    whole = json.loads(path.read_text())
    change(whole["index"])
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (lambda p, i: flip(p, -1), InputError, ["checksum of w[4:7, 0:5] is wrong", "safetensors, w[4:7,0:5]"]),
        (lambda p, i: flip(p, 20), InputError, ["damaged", "safetensors"]),
        (lambda p, i: p.write_bytes(p.read_bytes()[:-4]), InputError, ["bytes", "were written", "safetensors"]),
        (lambda p, i: p.unlink(), InputError, ["the file is missing", "safetensors"]),
        (lambda p, i: i.unlink(), InputError, ["there is no checkpoint in", "incomplete, it has no index.json"]),
        (lambda p, i: i.write_text("{"), InputError, ["index is damaged", "older checkpoint"]),
        (lambda p, i: edit(i, lambda x: x.update(step=5)), InputError, ["index is damaged", "checksum"]),
        (lambda p, i: edit(i, lambda x: x.update(version=2)), UnsupportedError, ["version 2", "install the version"]),
    ],
)
def test_damage_is_named(damage: Any, kind: type[ShardcError], words: list[str], tmp_path: Path) -> None:
    path = shardc.save_checkpoint(tmp_path, {"w": on(X, "x")}, step=0)
    (file,) = path.glob("*.safetensors")
    damage(file, path / "index.json")
    with pytest.raises(kind) as e:
        shardc.load_checkpoint(tmp_path)
    for word in words:
        assert word in str(e.value)


@pytest.mark.parametrize(
    ("tree", "options", "message"),
    [
        ({"a": object()}, {}, "cannot hold an object"),
        ({(1, 2): 3}, {}, "the key"),
        ({"a": np.array(["x"])}, {}, "is not an element type"),
        ({"a": 1}, {"step": -1}, "step=-1"),
        ({"a": 1}, {"keep": 0}, "keep=0"),
        ({"a": 1}, {"metadata": {"x": X}}, "metadata="),
        ({"a": 1}, {"metadata": {"x": [{3: 1}]}}, "metadata= has the key 3; keys in JSON are text"),
        ({"a": 1}, {"metadata": {1: 1, "x": 1}}, "metadata= has the key 1; keys in JSON are text"),
    ],
)
def test_what_cannot_be_saved(tree: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        shardc.save_checkpoint(tmp_path, tree, **{"step": 0, **options})
    assert shardc.latest_checkpoint(tmp_path) is None


def test_names_never_clash(tmp_path: Path) -> None:
    tree = {"a": {"b": X}, "a.b": X + 1, "__metadata__": X + 2}
    shardc.save_checkpoint(tmp_path, tree, step=0)
    jax.tree.map(same, shardc.load_checkpoint(tmp_path).tree, tree)


def test_keep_and_overwrite(tmp_path: Path) -> None:
    for step in (1, 4, 30, 200_000_000):
        shardc.save_checkpoint(tmp_path, {"s": np.int32(step)}, step=step, keep=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000030", "step-200000000"]
    with pytest.raises(InputError, match="a checkpoint of this step already exists"):
        shardc.save_checkpoint(tmp_path, {}, step=4)
    for value in (7, 8):
        path = shardc.save_checkpoint(tmp_path, {"s": np.int32(value)}, step=4, overwrite=True)
        assert shardc.load_checkpoint(path).tree == {"s": value}
        assert len(list(path.iterdir())) == 2
    assert shardc.latest_checkpoint(tmp_path) == tmp_path / "step-200000000"
    assert shardc.latest_checkpoint(tmp_path / "none") is None


def test_what_is_kept_behind_an_older_step(tmp_path: Path) -> None:
    for step in (3, 5):
        shardc.save_checkpoint(tmp_path, {}, step=step)
    shardc.save_checkpoint(tmp_path, {}, step=4, keep=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


def test_higher_steps_do_not_count_as_kept(tmp_path: Path) -> None:
    """A run that went back to step 2 keeps what it went back to."""
    for step in (1, 2, 7, 8):
        shardc.save_checkpoint(tmp_path, {}, step=step)
    shardc.save_checkpoint(tmp_path, {}, step=5, keep=2)
    assert [int(p.name.partition("-")[2]) for p in sorted(tmp_path.iterdir())] == [2, 5, 7, 8]
    with pytest.raises(InputError, match="keep=0"):
        shardc.AsyncCheckpointer(tmp_path, keep=0)


def test_none_in_like_need_not_have_been_saved(tmp_path: Path) -> None:
    shardc.save_checkpoint(tmp_path, {"a": X}, step=0)
    found = shardc.load_checkpoint(tmp_path, like={"a": X, "new": None}).tree
    same(found["a"], X)
    assert found["new"] is None


@pytest.mark.parametrize(
    ("saved", "like", "text"),
    [
        ({"m": 0 * X, "a": X}, [X, X], "the tree was saved as a dict, but like= has a list"),
        ({"s": 3}, {"s": np.int32(0)}, "s was saved as a Python int, not as an array, but like= has an array"),
        ({"s": None}, {"s": X}, "s was saved as None, not as an array"),
    ],
)
def test_like_of_another_kind_is_refused(saved: Any, like: Any, text: str, tmp_path: Path) -> None:
    shardc.save_checkpoint(tmp_path, saved, step=0)
    with pytest.raises(InputError, match=text):
        shardc.load_checkpoint(tmp_path, like=like)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    with pytest.raises(InputError, match=r"a\.py is a file, not a folder"):
        shardc.load_checkpoint(tmp_path / "a.py")


def test_neither_jax_nor_mpi_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np, shardc\n"
        "tree = {'w': shardc.array(np.ones((4, 4)), (shardc.Mesh({'x': 2}), shardc.P('x'))), 'n': (1, None)}\n"
        f"shardc.save_checkpoint({str(tmp_path)!r}, tree, step=0)\n"
        f"assert shardc.load_checkpoint({str(tmp_path)!r}, like=tree).tree['n'] == (1, None)\n"
        "print([m for m in ('jax', 'mpi4py.MPI') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_is_named_when_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(EnvironmentProblem, match="need the package safetensors") as e:
        shardc.save_checkpoint(tmp_path, {"w": X}, step=0)
    assert "shardc[checkpoint]" in str(e.value.fix)


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    for place in (tmp_path / "afile", tmp_path / "afile" / "sub"):
        with pytest.raises(InputError, match="afile is a file, not a folder") as caught:
            shardc.save_checkpoint(place, {"a": 1}, step=1)
        assert caught.value.fix
    with pytest.raises(InputError, match="/proc/ck cannot be written") as refused:
        shardc.save_checkpoint("/proc/ck", {"a": 1}, step=1)
    assert refused.value.fix == "name a place that you may write to"


def test_a_url_is_no_folder() -> None:
    for use in (
        lambda: shardc.save_checkpoint("s3://bucket/run", {"a": 1}, step=1),
        lambda: shardc.load_checkpoint("s3://bucket/run"),
        lambda: shardc.latest_checkpoint("s3://bucket/run"),
    ):
        with pytest.raises(InputError, match="s3://bucket/run is a URL"):
            use()


def test_steps_may_be_numbers_of_jax(tmp_path: Path) -> None:
    shardc.save_checkpoint(tmp_path, {}, step=jax.numpy.asarray(5))  # type: ignore[arg-type]
    assert shardc.load_checkpoint(tmp_path).step == 5
    with pytest.raises(InputError, match="a whole number, 0 or more"):
        shardc.save_checkpoint(tmp_path, {}, step=1.5)  # type: ignore[arg-type]


def test_big_endian_numbers_come_back_as_they_are_named(tmp_path: Path) -> None:
    tree = {"w": np.arange(3, dtype=">f8")}
    shardc.save_checkpoint(tmp_path / "kept", tree, step=1)
    found = shardc.load_checkpoint(tmp_path / "kept", like=tree).tree["w"]
    np.testing.assert_array_equal(found, tree["w"])
