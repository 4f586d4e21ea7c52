"""Reading and writing: every process its own part."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import shardc
import shardc.numpy as np
from shardc import Mesh, P
from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.checkpoint.locks import Lock
from tests.launcher.test_job import mpiexec

MESH = Mesh({"x": 2, "y": 2})
X = numpy.random.default_rng(2).random((37, 40))


def test_npy(tmp_path: Path) -> None:
    numpy.save(tmp_path / "x.npy", X)
    found = np.load(tmp_path / "x.npy", mesh=MESH, sharding=P("y", "x"))
    assert str(found.sharding) == "[{y}, {x}]"
    numpy.testing.assert_array_equal(numpy.asarray(found), X)
    np.save(tmp_path / "again", found * 2)
    numpy.testing.assert_array_equal(numpy.load(tmp_path / "again.npy"), X * 2)
    assert [f.name for f in tmp_path.iterdir() if "part" in f.name] == []
    numpy.savez(tmp_path / "both.npz", a=X, b=X[0])
    both = np.load(tmp_path / "both.npz", mesh=MESH)
    numpy.testing.assert_array_equal(numpy.asarray(both["b"]), X[0])


def test_a_save_leaves_the_files_of_other_saves(tmp_path: Path) -> None:
    """What one that ended has left is removed."""
    living, left = tmp_path / ".x.npy.1.part", tmp_path / ".x.npy.2.part"
    lock = Lock(living)
    left.touch()
    np.save(tmp_path / "x", X)
    assert sorted(p.name for p in tmp_path.iterdir()) == [living.name, "x.npy"]
    lock.release()


def test_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(InputError, match=r"text\.npy"):
        np.load(tmp_path / "text.npy")
    with pytest.raises(InputError, match="missing"):
        np.load(tmp_path / "missing.npy")
    with pytest.raises(InputError, match=r"folder\.npy cannot be written: the folder \S+no does not exist \(mkdir -p "):
        np.save(tmp_path / "no" / "folder.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"a list has no shape[\s\S]*np\.array"):
        np.from_array([1, 2, 3])
    with pytest.raises(InputError, match=r"text\.npy is no folder|cannot be written"):
        np.save(tmp_path / "text.npy" / "below.npy", X)


class Dataset:
    """What HDF5 and zarr have: a shape, a type, slices; it keeps what was read."""

    shape, dtype = X.shape, X.dtype

    def __init__(self) -> None:
        self.read: list[Any] = []

    def __getitem__(self, index: Any) -> Any:
        self.read.append(index)
        return X[index]


def test_only_parts_are_read() -> None:
    source = Dataset()
    found = np.from_array(source, mesh=MESH, sharding=P("x"))
    assert sorted((i[0].start, i[0].stop) for i in source.read) == [(0, 19), (19, 37)]
    numpy.testing.assert_array_equal(numpy.asarray(found), X)


def test_hdf5_and_zarr_by_their_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is asked of h5py and zarr, where they are not installed; with them see `test_installed_h5py`."""

    class File(dict):  # type: ignore[type-arg]
        def __init__(self, path: Any, mode: str) -> None:
            assert mode == "r"
            super().__init__({"u": Dataset()})

        def __enter__(self) -> File:
            return self

        def __exit__(self, *_: Any) -> None:
            self.clear()

    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=File))
    numpy.testing.assert_array_equal(numpy.asarray(np.from_hdf5("f.h5", "u", mesh=MESH)), X)
    with pytest.raises(InputError, match="'v'"):
        np.from_hdf5("f.h5", "v")
    monkeypatch.setitem(sys.modules, "zarr", SimpleNamespace(open=lambda path, mode: {"u": Dataset()}))
    numpy.testing.assert_array_equal(numpy.asarray(np.from_zarr("f.zarr", "u", mesh=MESH)), X)
    with pytest.raises(InputError, match="group"):
        np.from_zarr("f.zarr")
    for name, read in (("h5py", lambda: np.from_hdf5("f", "u")), ("zarr", lambda: np.from_zarr("f"))):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(EnvironmentProblem, match=name) as e:
            read()
        assert "pip install" in str(e.value)


@pytest.mark.parametrize("sharding", [P("x"), P("y", "x"), P(None, ("x", "y")), P()])
def test_installed_h5py(tmp_path: Path, sharding: P, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["group/x"] = X
        file.create_dataset("packed", data=X.astype(">f4"), chunks=(8, 16), compression="gzip")
        file["single"] = 3.5
    found, read = _while_counting(h5py.Dataset, monkeypatch, lambda: np.from_hdf5(path, "group/x", **_over(sharding)))
    numpy.testing.assert_array_equal(numpy.asarray(found), X)
    assert max(read) <= _largest_part(sharding)
    numpy.testing.assert_array_equal(numpy.asarray(np.from_hdf5(path, "packed", **_over(sharding))), X.astype("f4"))
    assert float(np.from_hdf5(path, "single", mesh=MESH)) == 3.5
    for name in ("group", "none"):
        with pytest.raises(InputError, match=name):
            np.from_hdf5(path, name)
    (tmp_path / "text.h5").write_text("no file of HDF5")
    with pytest.raises(InputError, match=r"text\.h5"):
        np.from_hdf5(tmp_path / "text.h5", "x")


@pytest.mark.parametrize("sharding", [P("x"), P("y", "x"), P(None, ("x", "y")), P()])
def test_installed_zarr(tmp_path: Path, sharding: P, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "x.zarr"
    group = zarr.open(path, mode="w")
    group.create_array("x", data=X, chunks=(8, 16))
    zarr.save(tmp_path / "alone.zarr", X)
    kind = type(zarr.open(path, mode="r")["x"])
    found, read = _while_counting(kind, monkeypatch, lambda: np.from_zarr(path, "x", **_over(sharding)))
    numpy.testing.assert_array_equal(numpy.asarray(found), X)
    assert max(read) <= _largest_part(sharding)
    numpy.testing.assert_array_equal(numpy.asarray(np.from_zarr(tmp_path / "alone.zarr", **_over(sharding))), X)
    for wrong in ({"path": path}, {"path": path, "name": "none"}, {"path": tmp_path / "none.zarr"}):
        with pytest.raises(InputError, match="zarr"):
            np.from_zarr(**wrong)


def _over(sharding: P) -> dict[str, Any]:
    return {"mesh": MESH, "sharding": sharding}


def _largest_part(sharding: P) -> int:
    """Elements of the largest part of ``X``."""
    return max(s.data.size for s in np.from_array(X, **_over(sharding)).addressable_shards)


def _while_counting(kind: type, monkeypatch: pytest.MonkeyPatch, read: Any) -> tuple[Any, list[int]]:
    """What ``read`` gives, and the sizes of all that was read from a ``kind`` of arrays meanwhile."""
    sizes: list[int] = []
    plain = kind.__getitem__  # type: ignore[attr-defined]

    def counted(self: Any, index: Any) -> Any:
        made = plain(self, index)
        sizes.append(numpy.size(made))
        return made

    monkeypatch.setattr(kind, "__getitem__", counted)
    return read(), sizes


def test_ranks(tmp_path: Path, repository: Path) -> None:
    numpy.save(tmp_path / "x.npy", X)
    code = (
        "import sys, numpy, shardc, shardc.numpy as np\n"
        "x = np.load(sys.argv[1]); np.save(sys.argv[2], x.T + 1)\n"
        "rng = np.random.default_rng(4); np.save(sys.argv[3], rng.normal(size=(64, 3)))\n"
    )
    names = [str(tmp_path / n) for n in ("x.npy", "y.npy", "n.npy")]
    done = mpiexec(2, sys.executable, "-c", code, *names, cwd=repository)
    assert done.returncode == 0, done.stderr
    numpy.testing.assert_array_equal(numpy.load(names[1]), X.T + 1)
    wanted = np.random.default_rng(4).normal(size=(64, 3))
    numpy.testing.assert_array_equal(numpy.load(names[2]), numpy.asarray(shardc.gather(wanted)))
