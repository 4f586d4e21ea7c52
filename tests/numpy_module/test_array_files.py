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


def test_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(InputError, match=r"text\.npy"):
        np.load(tmp_path / "text.npy")
    with pytest.raises(InputError, match="missing"):
        np.load(tmp_path / "missing.npy")
    with pytest.raises(InputError, match="cannot be written"):
        np.save(tmp_path / "no" / "folder.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"numpy\.save"):
        np.save(tmp_path / "plain.npy", X)  # type: ignore[arg-type]


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
    """What is asked of h5py and zarr, where they are not installed; with them, `test_installed_libraries`."""

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


def test_installed_libraries(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["group/x"] = X
    numpy.testing.assert_array_equal(numpy.asarray(np.from_hdf5(tmp_path / "x.h5", "group/x", mesh=MESH)), X)


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
