"""Models from elsewhere: plain files of safetensors with a sharding per name."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError, InputError

MESH = Mesh({"model": 2, "data": 2})
TENSORS = {
    f"layers.{n}.{k}.weight": np.arange(24, dtype=np.float32).reshape(6, 4).astype(t) + n
    for n in range(2)
    for k, t in (("up", np.float32), ("down", ml_dtypes.bfloat16))
} | {"norm": np.ones(4, np.float16)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two files with a list of what is in which; one more that is not on it."""
    parts = {"model-1.safetensors": list(TENSORS)[:2], "model-2.safetensors": list(TENSORS)[2:]}
    for file, names in parts.items():
        save_file({n: TENSORS[n] for n in names}, tmp_path / file)
    listed = {"weight_map": {n: file for file, names in parts.items() for n in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(listed))
    save_file({"other": np.ones(3)}, tmp_path / "zother.safetensors")
    return tmp_path


def test_shardings_by_glob(model: Path) -> None:
    globs = {"layers.1.up.weight": P(), "*.up.weight": P("model"), "*.down.weight": P(None, "model")}
    found = shardc.load_safetensors(model, globs, mesh=MESH)
    assert sorted(found) == sorted(TENSORS)
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(found[name]), value)
    shards = {n: a.sharding.num_shards() for n, a in found.items()}
    assert shards["layers.0.up.weight"] == (2, 1)
    assert shards["layers.1.up.weight"] == (1, 1)
    assert shards["layers.0.down.weight"] == (1, 2)


def test_one_file_and_some_names(model: Path) -> None:
    found = shardc.load_safetensors(model / "model-1.safetensors", names="*.up.*")
    assert list(found) == ["layers.0.up.weight"]
    assert isinstance(found["layers.0.up.weight"], np.ndarray)
    (model / "model.safetensors.index.json").unlink()
    assert "other" in shardc.load_safetensors(model)


def test_errors(model: Path) -> None:
    with pytest.raises(AnnotationError, match=r"not a dict\n.*globs"):
        shardc.load_safetensors(model, P("model"), mesh=MESH)  # type: ignore[arg-type]
    with pytest.raises(AnnotationError, match=r"no tensor is called '\*.uq.weight'"):
        shardc.load_safetensors(model, {"*.uq.weight": P("model")}, mesh=MESH)
    with pytest.raises(InputError, match="is neither a file nor a folder"):
        shardc.load_safetensors(model / "nothing")
    (model / "model-2.safetensors").unlink()
    with pytest.raises(InputError, match="the file is missing"):
        shardc.load_safetensors(model)
    save_file({"norm": np.ones(3)}, model / "model-2.safetensors")
    save_file({"norm": np.ones(3)}, model / "model-3.safetensors")
    (model / "model.safetensors.index.json").unlink()
    with pytest.raises(InputError, match="two files contain the tensor norm"):
        shardc.load_safetensors(model)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("no tensors at all")
    with pytest.raises(InputError, match="the file is damaged, truncated, or not a safetensors file") as caught:
        shardc.load_safetensors(tmp_path / "model", {}, mesh=MESH)
    assert caught.value.fix == "name a safetensors file, or download the model again"


def test_names_are_one_glob(model: Path) -> None:
    with pytest.raises(InputError, match=r"no tensor matches names='layers\.7\.\*'"):
        shardc.load_safetensors(model, names="layers.7.*")
    with pytest.raises(InputError, match="names= is one glob, not a list"):
        shardc.load_safetensors(model, names=["*.up.*"])  # type: ignore[arg-type]
