"""The index of a checkpoint: its tensors, their shardings, and the place of each part.

``index.json`` holds ``{"sha256": digest of the rest, "index": {...}}``. A folder is a checkpoint when it has one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import DTYPES, DType
from shardc.launcher.arrays.layout import Region

__all__ = ["INDEX", "VERSION", "Index", "StoredShard", "StoredTensor"]

INDEX = "index.json"
#: Counts changes after which older readers would read nonsense.
VERSION = 1
_FORMAT = "shardc checkpoint"


@dataclass(frozen=True, slots=True)
class StoredShard:
    """The part of a tensor that starts at ``start``, under ``key`` in ``file``.

    ``checksums`` are those of its tiles of ``tile`` elements, row-major: SHA-256, cut to 128 bits, of each tile's bytes
    in row-major order.
    """

    file: str
    key: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    tile: tuple[int, ...]
    checksums: tuple[str, ...]

    @property
    def region(self) -> Region:
        return tuple(slice(a, a + n) for a, n in zip(self.start, self.shape, strict=True))


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A global array; ``sharding`` is the one that it was saved with."""

    dtype: DType
    shape: tuple[int, ...]
    sharding: Sharding | None
    shards: tuple[StoredShard, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """A checkpoint: ``tree`` is how its leaves belong together (`shardc.launcher.checkpoint.tree`), ``files`` their
    sizes in bytes. ``generation`` counts how often it was overwritten, ``metadata`` is the user's."""

    step: int
    processes: int
    tree: Any
    tensors: Mapping[str, StoredTensor]
    files: Mapping[str, int]
    metadata: Any = None
    generation: int = 0
    digest: str = field(default="", compare=False)

    def to_bytes(self) -> bytes:
        content = {
            "format": _FORMAT,
            "version": VERSION,
            "step": self.step,
            "generation": self.generation,
            "processes": self.processes,
            "metadata": self.metadata,
            "tree": self.tree,
            "files": dict(self.files),
            "tensors": {name: _tensor_out(t) for name, t in self.tensors.items()},
        }
        text = json.dumps({"sha256": _digest(content), "index": content}, indent=1, allow_nan=False)
        return (text + "\n").encode("utf-8")

    @staticmethod
    def read(folder: Path) -> Index:
        """The index of the checkpoint in ``folder``; `InputError` for none and for a damaged one, `UnsupportedError`
        for that of a newer shardc."""
        path = folder / INDEX
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            content = whole["index"]
            known = content["format"] == _FORMAT
        except FileNotFoundError:
            raise InputError(f"{folder} is not a checkpoint: it has no {INDEX}") from None
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise _damaged(path, f"it cannot be read: {e}") from None
        if not known or content.get("version") != VERSION:
            raise UnsupportedError(
                f"the checkpoint has format {content.get('format')!r}, version {content.get('version')}",
                where=str(path),
                fix=f"this shardc reads {_FORMAT!r}, version {VERSION}: install the version that wrote it",
            )
        if _digest(content) != whole.get("sha256"):
            raise _damaged(path, "its checksum is wrong")
        return _index_in(content, whole["sha256"], path)


def _index_in(content: Mapping[str, Any], digest: str, path: Path) -> Index:
    try:
        tensors = {name: _tensor_in(t) for name, t in content["tensors"].items()}
        plain = (content["step"], content["processes"], content["tree"])
        return Index(*plain, tensors, content["files"], content["metadata"], content["generation"], digest)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise _damaged(path, f"a part of it is missing or wrong: {e!r}") from None


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"the index is damaged: {what}", where=str(path), fix="load an older checkpoint")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _tensor_out(tensor: StoredTensor) -> dict[str, Any]:
    shards = [
        {"file": s.file, "key": s.key, "start": s.start, "shape": s.shape, "tile": s.tile, "sha256": s.checksums}
        for s in tensor.shards
    ]
    out = {"dtype": tensor.dtype.name, "shape": tensor.shape, "sharding": _sharding_out(tensor.sharding)}
    return {**out, "shards": shards}


def _tensor_in(data: Mapping[str, Any]) -> StoredTensor:
    shards = tuple(
        StoredShard(
            str(s["file"]), str(s["key"]), _ints(s["start"]), _ints(s["shape"]), _ints(s["tile"]), tuple(s["sha256"])
        )
        for s in data["shards"]
    )
    tensor = StoredTensor(DTYPES[data["dtype"]], _ints(data["shape"]), _sharding_in(data["sharding"]), shards)
    if sum(math.prod(s.shape) for s in shards) != math.prod(tensor.shape):
        raise ValueError(f"the shards do not make up a tensor of shape {list(tensor.shape)}")
    return tensor


def _ints(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _sharding_out(sharding: Sharding | None) -> Any:
    if sharding is None:
        return None
    mesh = sharding.mesh
    dims = [[[a.name, a.pre, a.size] if a.size else a.name for a in axes] for axes in sharding.axes_by_dim]
    return {"mesh": [list(axis) for axis in mesh.axes], "device_ids": mesh.device_ids, "dims": dims}


def _sharding_in(data: Any) -> Sharding | None:
    if data is None:
        return None
    ids = data["device_ids"]
    mesh = Mesh(tuple((str(n), int(k)) for n, k in data["mesh"]), None if ids is None else _ints(ids))
    dims = tuple(DimSharding(tuple(_axis_in(a) for a in axes)) for axes in data["dims"])
    return Sharding(mesh, dims)


def _axis_in(data: Any) -> AxisRef:
    return AxisRef(data) if isinstance(data, str) else AxisRef(str(data[0]), int(data[1]), int(data[2]))
