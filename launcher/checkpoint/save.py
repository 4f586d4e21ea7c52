"""Writing checkpoints: all ranks their shards, rank 0 the index, and the folder's name last."""

from __future__ import annotations

import hashlib
import json
import operator
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import InputError
from shardc.hlo.files import make_folder, replacing
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.layout import ArrayLayout, Region
from shardc.launcher.arrays.pieces import cut, inside, region_text, volume, whole_region
from shardc.launcher.arrays.placement import as_dtype, layout_of
from shardc.launcher.checkpoint import folders
from shardc.launcher.checkpoint.files import safetensors, stored, write_file
from shardc.launcher.checkpoint.index import INDEX, Index, StoredShard, StoredTensor
from shardc.launcher.checkpoint.locks import Lock
from shardc.launcher.checkpoint.threads import for_all
from shardc.launcher.checkpoint.together import Together
from shardc.launcher.checkpoint.tree import Flat, described_leaves, flatten
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.jobs.job import job_transport, threads_per_process

__all__ = ["TILE_BYTES", "CheckpointSaving", "begin_saving", "checksum", "save_checkpoint"]

#: About what is read and checked at once: tiles of a tensor have at most so many bytes.
TILE_BYTES = 4 << 20


def save_checkpoint(
    folder: str | Path,
    tree: Any,
    *,
    step: int,
    keep: int | None = None,
    overwrite: bool = False,
    metadata: Any = None,
) -> Path:
    """Write ``tree`` as ``folder/step-00000100``, and return that path. In a job *every* rank must call it.

    ``tree`` is an array, or a pytree (dicts, lists, tuples, named tuples, dataclasses, JAX's types). Leaves are
    `Array`, NumPy and JAX arrays (the same on every rank), typed PRNG keys, Python numbers, strings and None. Each
    distinct shard is written once, by the rank of the first device that holds it. The checkpoint appears when all of it
    is on disk, and a crash leaves earlier ones intact. ``keep`` is the number of checkpoints to keep up to this
    step: earlier ones are removed afterwards, and those of higher steps stay. ``overwrite`` replaces one of the same
    step, also atomically. ``metadata`` is plain JSON data. All ranks must see the folder.

    Raises `InputError` and `RunError`; when one rank fails, all raise.

    >>> state = {"w": shardc.array(np.ones((8, 4)), (mesh, P("data"))), "rate": 0.1}
    >>> str(shardc.save_checkpoint("run", state, step=100, keep=3))
    'run/step-00000100'
    """
    saving = begin_saving(folder, tree, step=step, keep=keep, overwrite=overwrite, metadata=metadata)
    return saving.finish(saving.write)


def begin_saving(
    folder: str | Path, tree: Any, *, step: int, keep: int | None, overwrite: bool, metadata: Any
) -> CheckpointSaving:
    """Check what is to be saved, and make its folder. In a job every rank must call it. Raises as `save_checkpoint`."""
    transport = job_transport(job_config())
    target = folders.checkpoint_path(folders.local_folder(folder), _checked(step, keep, metadata))
    made: list[_SavePlan] = []
    everybody = Together(transport)
    everybody.do("preparing a checkpoint", lambda: made.append(_SavePlan.of(tree, transport)))
    plan = made.pop()
    _need_equal(target, plan, transport)
    everybody = Together(transport, plan.most_bytes)
    locks: list[Lock | None] = []
    name = everybody.on_first("creating a folder", lambda: _begin(target, overwrite, locks))
    place = target.with_name(str(name))
    return CheckpointSaving(
        transport, target, place, locks[0] if locks else None, plan, int(step), keep, overwrite, metadata
    )


@dataclass(frozen=True)
class CheckpointSaving:
    """A checkpoint on its way: `write` this rank's file into ``place``, which needs no other rank, then `finish` on
    all of them. Rank 0 holds the ``lock`` of ``place`` until then."""

    transport: Transport
    target: Path
    place: Path
    lock: Lock | None
    plan: _SavePlan
    step: int
    keep: int | None
    overwrite: bool
    metadata: Any

    def copied(self) -> CheckpointSaving:
        """The same with copies of the shards that this rank writes: arrays may be donated and written to meanwhile."""
        mine = (replace(p, data=None if p.owner != self.plan.rank else np.array(p.data)) for p in self.plan.parts)
        return replace(self, plan=replace(self.plan, parts=tuple(mine)))

    def write(self) -> _RankFiles:
        """Write the shards of this rank. Raises OSError and `InputError`."""
        name = f"data-{self.transport.process_index:05d}-of-{self.transport.process_count:05d}.safetensors"
        return _write(self.place, name, self.plan, self.step)

    def finish(self, written: Callable[[], _RankFiles]) -> Path:
        """Make the checkpoint appear once ``written`` has answered on every rank; when it fails on one, all raise."""
        everybody = Together(self.transport, self.plan.most_bytes)
        try:
            files = everybody.do("writing a checkpoint", written)
            everybody.on_first("completing a checkpoint", lambda: self._complete(files))
        except Exception:
            if self.transport.process_index == 0:
                shutil.rmtree(self.place, ignore_errors=True)
            raise
        finally:
            if self.lock is not None:
                self.lock.release()
        return self.target

    def _complete(self, written: list[_RankFiles]) -> None:
        """Give the files their names in the checkpoint; that of the index is the last."""
        with folders.alone(self.target.parent):
            _need_files(self.place, written)
            generation = _generation(self.target, self.overwrite, "another save has completed this step meanwhile")
            renamed = {part.file: _file_again(part.file, generation) for part in written if part.shards}
            index = self.plan.index(self.step, written, renamed, self.metadata, generation)
            if generation:
                for old, new in renamed.items():
                    shutil.move(self.place / old, self.target / new)  # A link may lead to another disk.
            place = self.target if generation else self.place
            folders.sync_folder(place)
            with replacing(place / INDEX) as file:
                file.write(index.to_bytes())
            folders.sync_folder(place)
            if self.lock is not None:
                self.lock.release()
            if generation:
                folders.put_away(self.place)
            else:
                self.place.rename(self.target)
            folders.sync_folder(self.target.parent)
            for path in folders.unneeded(self.target, index.files):
                path.unlink()
            if self.keep is not None:
                folders.prune(self.target.parent, self.keep, index.step)


@dataclass(frozen=True)
class _Part:
    """A distinct shard: ``region`` of the tensor ``name``, written by rank ``owner``."""

    name: str
    key: str
    region: Region
    owner: int
    data: NDArray[Any] | None


@dataclass(frozen=True)
class _SavePlan:
    flat: Flat
    layouts: Mapping[str, ArrayLayout]
    parts: tuple[_Part, ...]
    rank: int

    @staticmethod
    def of(tree: Any, transport: Transport) -> _SavePlan:
        safetensors()
        flat = flatten(tree)
        layouts: dict[str, ArrayLayout] = {}
        parts: list[_Part] = []
        for name, value in flat.arrays.items():
            if isinstance(value, Array):
                layouts[name] = value._layout
                parts += _parts_of(name, value, transport)
            else:
                layouts[name] = layout_of(value.shape, as_dtype(value.dtype, name), None, name)
                mine = value if transport.process_index == 0 else None
                parts.append(_Part(name, name, whole_region(value.shape), 0, mine))
        return _SavePlan(flat, layouts, tuple(parts), transport.process_index)

    @cached_property
    def leaves(self) -> Mapping[str, str]:
        """What all ranks must agree on, by leaf: numbers, layouts, and the values of arrays without a sharding."""
        out = dict(described_leaves(self.flat.tree))
        for name, p in self.layouts.items():
            value = self.flat.arrays[name]
            content = "" if isinstance(value, Array) else checksum(value)
            out[name] = repr((out.get(name), p.dims, p.dtype.name, str(p.sharding), p.num_devices, content))
        return out

    @property
    def digest(self) -> str:
        """The same, and how the leaves belong together, in short."""
        return hashlib.sha256(repr((self.flat.tree, self.leaves)).encode()).hexdigest()

    @property
    def most_bytes(self) -> int:
        """What the busiest rank writes."""
        out: dict[int, int] = {}
        for part in self.parts:
            out[part.owner] = out.get(part.owner, 0) + volume(part.region) * self.layouts[part.name].dtype.nbytes
        return max(out.values(), default=0)

    def index(
        self, step: int, written: list[_RankFiles], files: Mapping[str, str], metadata: Any, generation: int
    ) -> Index:
        """``files`` has the names in the checkpoint by those that were ``written``."""
        shards: dict[str, list[StoredShard]] = {name: [] for name in self.layouts}
        for name, shard in (found for part in written for found in part.shards):
            shards[name].append(replace(shard, file=files[shard.file]))
        tensors = {
            name: StoredTensor(
                p.dtype, p.dims, None if p.maximal else p.sharding, tuple(sorted(shards[name], key=lambda s: s.start))
            )
            for name, p in self.layouts.items()
        }
        sizes = {files[part.file]: part.nbytes for part in written if part.shards}
        return Index(step, len(written), self.flat.tree, tensors, sizes, metadata, generation)


@dataclass(frozen=True, slots=True)
class _RankFiles:
    """What one rank wrote, by tensor."""

    file: str
    nbytes: int
    shards: tuple[tuple[str, StoredShard], ...]


def _parts_of(name: str, array: Array, transport: Transport) -> Iterator[_Part]:
    """The distinct shards of ``array`` that are not all padding."""
    layout, blocks = array._layout, array._live()
    owners = transport.ownership(layout.num_devices).table()
    for position, device in layout.holders.items():
        region = layout.region(position)
        if not volume(region):
            continue
        whole = region == whole_region(layout.dims)
        data = layout.without_padding(blocks[device], position) if device in blocks else None
        key = name if whole else name + region_text(region).replace(" ", "")
        yield _Part(name, key, region, int(owners[device]), data)


def check_keep(keep: int | None) -> None:
    """Raise `InputError` for what is no number of checkpoints to keep."""
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int | np.integer) or keep < 1):
        raise InputError(f"keep={keep!r}", fix="give a number, 1 or more, or omit keep=")


def _checked(step: int, keep: int | None, metadata: Any) -> int:
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"step={step!r}", fix="give the number of the training step, a whole number, 0 or more")
    check_keep(keep)
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise InputError(f"metadata= cannot be written as JSON: {e}", fix="put arrays into the tree") from None
    key = next(_other_keys(metadata), None)
    if key is not None:
        raise InputError(f"metadata= has the key {key!r}; keys in JSON are text", fix=f"use {str(key)!r}")
    return number


def _other_keys(value: Any) -> Iterator[Any]:
    """Keys of dicts in ``value`` that are no text."""
    if isinstance(value, dict):
        yield from (key for key in value if not isinstance(key, str))
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _other_keys(inner)


def _need_equal(target: Path, plan: _SavePlan, transport: Transport) -> None:
    """Raise `InputError` on all ranks where their checkpoints have different names or trees. All ranks call it
    together."""
    if transport.process_count == 1:
        return
    everybody = transport.exchange_objects((str(target), plan.digest), doing="save_checkpoint (trees are compared)")
    different = next((rank for rank, other in enumerate(everybody) if other != everybody[0]), None)
    if different is None:
        return
    (first_target, _), (other_target, _) = everybody[0], everybody[different]
    if first_target != other_target:
        raise InputError(
            f"rank 0 saves {first_target}, but rank {different} saves {other_target}",
            fix="give all ranks the same folder and step; shards of all ranks make one checkpoint",
        )
    leaves = transport.exchange_objects(plan.leaves, doing="save_checkpoint (trees are compared)")
    first, other = leaves[0], leaves[different]
    name = next((n for n in (*first, *other) if first.get(n) != other.get(n)), None)
    raise InputError(
        f"rank 0 and rank {different} save different trees",
        where=f"leaf {name}" if name else None,
        fix="give all ranks the same structure, numbers, NumPy arrays, shapes, types and shardings; to save values of "
        "one rank, put them into an array with shardc.array_from_process_local_data",
    )


def _begin(target: Path, overwrite: bool, locks: list[Lock | None]) -> str:
    """Make a hidden folder for a checkpoint; returns its name and appends its lock to ``locks``."""
    make_folder(target.parent)
    with folders.alone(target.parent):
        folders.put_leftovers_away(target.parent)
        _generation(target, overwrite, "a checkpoint of this step already exists")
        place, lock = folders.new_staging(target)
    locks.append(lock)
    return place.name


def _generation(target: Path, overwrite: bool, if_there: str) -> int:
    """How often ``target`` will have been overwritten; `InputError` where it may not be."""
    if not target.exists():
        return 0
    if not (target / INDEX).is_file():
        raise InputError(f"{target} exists, but is not a checkpoint", fix="move it away, or save another step")
    if not overwrite:
        raise InputError(f"{if_there}: {target}", fix="save another step, or pass overwrite=True")
    return Index.read(target).generation + 1


def _need_files(place: Path, written: list[_RankFiles]) -> None:
    """Raise `InputError` unless rank 0 sees what the ranks wrote."""
    if not place.is_dir():
        raise InputError(
            f"{place} was removed while the checkpoint was written",
            fix="save into another folder: another job saves in this one, and its disk has no locks",
        )
    for part in written:
        path = place / part.file
        if part.shards and (not path.is_file() or path.stat().st_size != part.nbytes):
            raise InputError(
                f"{path} is missing or incomplete on rank 0",
                fix="save to a folder that all nodes share",
            )


def _file_again(name: str, generation: int) -> str:
    """The name of a data file in a checkpoint that was overwritten ``generation`` times."""
    return name.replace(".", f"-again{generation}.") if generation else name


def _write(place: Path, name: str, plan: _SavePlan, step: int) -> _RankFiles:
    threads = threads_per_process(job_config())
    mine = [p for p in plan.parts if p.owner == plan.rank]
    if not mine:
        return _RankFiles(name, 0, ())
    arrays: dict[str, NDArray[Any]] = {}
    shards: list[tuple[str, StoredShard]] = []
    for part in mine:
        assert part.data is not None
        dtype = plan.layouts[part.name].dtype
        arrays[part.key] = stored(part.data, dtype)
        shards.append((part.name, _described(name, part, part.data, threads)))
    nbytes = write_file(place / name, arrays, {"format": "shardc", "step": str(step)})
    return _RankFiles(name, nbytes, tuple(shards))


def _described(file: str, part: _Part, data: NDArray[Any], threads: int) -> StoredShard:
    tile = tile_of(data.shape, data.dtype.itemsize)

    def of(region: Region) -> str:
        place: tuple[Any, ...] = inside(region, part.region)
        return checksum(data[(*place, ...)])

    checksums = tuple(for_all(of, list(cut(part.region, tile)), threads))
    return StoredShard(file, part.key, tuple(s.start for s in part.region), data.shape, tile, checksums)


def tile_of(dims: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """The largest dimension is halved until a tile has no more than `TILE_BYTES`."""
    tile = [max(1, n) for n in dims]
    while tile and int(np.prod(tile, dtype=np.int64)) * nbytes > TILE_BYTES and max(tile) > 1:
        longest = tile.index(max(tile))
        tile[longest] = -(-tile[longest] // 2)
    return tuple(tile)


def checksum(data: NDArray[Any]) -> str:
    """SHA-256 of the bytes of ``data`` in row-major order, cut to 128 bits."""
    plain = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return hashlib.sha256(plain.data).hexdigest()[:32]
