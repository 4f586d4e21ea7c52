"""Reading checkpoints: every rank the parts that its devices hold, checked by their checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.launcher.arrays.assemble import block_of
from shardc.launcher.arrays.layout import Region
from shardc.launcher.arrays.make_arrays import array_of
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.arrays.pieces import Piece, cut, inside, overlap, region_text, volume
from shardc.launcher.arrays.placement import as_dtype, as_sharding, is_sharding, is_spec, layout_of
from shardc.launcher.arrays.trees import map_with_prefix
from shardc.launcher.checkpoint import folders
from shardc.launcher.checkpoint.files import TensorFile
from shardc.launcher.checkpoint.index import INDEX, Index, StoredShard, StoredTensor
from shardc.launcher.checkpoint.save import checksum
from shardc.launcher.checkpoint.threads import for_all
from shardc.launcher.checkpoint.together import Together
from shardc.launcher.checkpoint.tree import rebuild, rebuild_like, wrap_key
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.jobs.job import job_transport, threads_per_process
from shardc.sharding.axes.sub_axes import check_axes

__all__ = ["LoadedCheckpoint", "Reader", "load_checkpoint"]


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """What a checkpoint holds: its ``tree``, the ``step`` and ``metadata`` that it was saved with, where it is, and
    the bytes of tensors that this process read."""

    tree: Any
    step: int
    metadata: Any
    path: Path
    bytes_read: int


def load_checkpoint(
    path: str | Path,
    like: Any = None,
    *,
    shardings: Any = None,
    mesh: Any = None,
    verify: bool = True,
) -> LoadedCheckpoint:
    """Load what `save_checkpoint` wrote, on any mesh and number of ranks; each rank reads what its devices hold.

    ``path`` is a checkpoint, or a folder of them, of which the latest is taken. The result has ``tree``, ``step``,
    ``metadata``, ``path`` and ``bytes_read``. ``like`` gives the structure of the tree: its leaves say shape, type and
    sharding (arrays, `ShapeDtype`, ``jax.ShapeDtypeStruct``), and None is not loaded. Without it, named tuples,
    dataclasses and other containers become dicts.

    An array gets its sharding from ``shardings`` (a pytree that is a prefix, in the forms of `array`), else from its
    leaf in ``like``. Without either, it keeps the saved sharding, over the axes of ``mesh`` with the same names. A
    NumPy array without a sharding is loaded as NumPy. ``verify=False`` skips checksums.

    In a job every rank must call it, and when one fails all raise. `InputError` names the file, tensor and part that is
    damaged, missing or does not fit.

    >>> state = {"w": shardc.array(np.ones((8, 4)), (mesh, P("data")))}
    >>> path = shardc.save_checkpoint("trained", state, step=7)
    >>> found = shardc.load_checkpoint("trained", mesh=Mesh({"data": 4}))
    >>> found.step, len(found.tree["w"].addressable_shards)
    (7, 4)
    """
    transport = job_transport(job_config())
    everybody, folder = Together(transport), folders.local_folder(path)
    found = everybody.on_first("finding a checkpoint", lambda: folders.resolve(folder).name)
    place = folder if (folder / INDEX).is_file() else folder / str(found)
    made: list[Any] = []
    everybody.do("reading an index", lambda: made.append(Index.read(place)))
    index = made.pop()
    if len(set(transport.exchange_objects(index.digest, doing="load_checkpoint (indices are compared)"))) > 1:
        raise InputError(
            "the ranks see different checkpoints", where=str(place), fix="use a folder that all nodes share"
        )
    over, threads = None if mesh is None else as_mesh(mesh), threads_per_process(job_config())
    reader = Reader(place, index, verify, over, transport, threads)
    everybody = Together(transport, sum(index.files.values()))
    everybody.do("reading a checkpoint", lambda: made.append(reader.tree(like, shardings)))
    return LoadedCheckpoint(made.pop(), index.step, index.metadata, place, reader.bytes_read)


@dataclass
class Reader:
    """Reads tensors of the checkpoint in ``folder``; ``bytes_read`` counts what was looked at."""

    folder: Path
    index: Index
    verify: bool
    mesh: Mesh | None
    transport: Transport
    threads: int = 1
    bytes_read: int = 0
    _files: dict[str, TensorFile] = field(default_factory=dict)
    _cut_piece: set[tuple[str, str, int]] = field(default_factory=set)

    def tree(self, like: Any, shardings: Any) -> Any:
        """Everything, in the structure of ``like`` or of the checkpoint."""

        def load(leaf: Any, sharding: Any) -> Any:
            if not isinstance(leaf, _Wanted):
                return leaf
            found = self.tensor(leaf.name, leaf.like, sharding)
            return wrap_key(found, leaf.key_impl) if leaf.key_impl else found

        where = str(self.folder)
        saved = self.index.tree
        wanted = rebuild(saved, _Wanted) if like is None else rebuild_like(like, saved, _Wanted, where)

        return map_with_prefix(load, wanted, shardings, is_sharding)

    def tensor(self, name: str, like: Any, given: Any) -> Any:
        """One tensor: an `Array`, or NumPy if it has no sharding."""
        stored = self.index.tensors[name]
        self._check_like(name, stored, like)
        sharding = self._sharding(name, stored, like, given)
        layout = replace(layout_of(stored.shape, stored.dtype, sharding), name=name)
        source = _Source(self, name, stored)
        if sharding is not None:
            return array_of(layout, source, copy=True, transport=self.transport)
        block, _ = block_of(layout, (0,) * len(stored.shape), source, self.transport.empty, copy=True)
        return layout.typed(block)

    def _sharding(self, name: str, stored: StoredTensor, like: Any, given: Any) -> Sharding | None:
        own = getattr(like, "sharding", None)
        if given is None and own is not None:
            given = own
        if given is not None:
            mesh = self.mesh
            if is_spec(given) and mesh is None and stored.sharding is not None:
                mesh = stored.sharding.mesh
            found = as_sharding(given, len(stored.shape), mesh if is_spec(given) else None, name)
            if found is not None:
                return found
        saved = stored.sharding
        if saved is None or self.mesh is None or self.mesh == saved.mesh:
            return saved
        moved = replace(saved, mesh=self.mesh)
        try:
            check_axes(moved, name)
        except AnnotationError as e:
            raise InputError(
                f"{name} was saved as {saved} over {saved.mesh}, which does not fit {self.mesh}: {e.what}",
                fix="give shardings= for it",
            ) from None
        return moved

    def _check_like(self, name: str, stored: StoredTensor, like: Any) -> None:
        shape, dtype = getattr(like, "shape", None), getattr(like, "dtype", None)
        if shape is None or dtype is None:
            return
        if tuple(shape) != stored.shape or as_dtype(dtype, name) != stored.dtype:
            raise InputError(
                f"{name} is {stored.dtype}{list(stored.shape)} in the checkpoint, but {dtype}{list(shape)} in like=",
                where=str(self.folder),
                fix="load it as it is (omit it from like=), and convert it",
            )

    def file(self, name: str) -> TensorFile:
        """A data file, opened once, of the size that it was written with."""
        if name not in self._files:
            path = self.folder / name
            expected = self.index.files.get(name)
            size = path.stat().st_size if path.is_file() else None
            if size is not None and size != expected:
                raise InputError(
                    f"the file has {size} bytes, but {expected} were written",
                    where=str(path),
                    fix="load an older checkpoint",
                )
            self._files[name] = TensorFile(path)
        return self._files[name]

    def checked(self, name: str, shard: StoredShard, tiles: Mapping[int, Piece]) -> None:
        """Count tiles of a shard, and check those that were not before."""
        new = [(n, p) for n, p in tiles.items() if (shard.file, shard.key, n) not in self._cut_piece]
        self.bytes_read += sum(piece.data.nbytes for _, piece in new)
        found = for_all(checksum, [piece.data for _, piece in new], self.threads)
        for (number, piece), is_now in zip(new, found, strict=True):
            if is_now != shard.checksums[number]:
                raise InputError(
                    f"the checksum of {name}{region_text(piece.region)} is wrong",
                    where=f"{self.folder / shard.file}, {shard.key}",
                    fix="load an older checkpoint, or read the damaged data with verify=False",
                )
            self._cut_piece.add((shard.file, shard.key, number))


class _Wanted:
    """Stands for a tensor until its sharding is known; not a dataclass, which would be a tree."""

    def __init__(self, name: str, like: Any, key_impl: str) -> None:
        self.name, self.like, self.key_impl = name, like, key_impl


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor in the files of a checkpoint."""

    reader: Reader
    name: str
    stored: StoredTensor

    def pieces(self, region: Region) -> Iterator[Piece]:
        for shard in self.stored.shards:
            wanted = overlap(region, shard.region)
            if wanted is None:
                continue
            data = self.reader.file(shard.file).read(shard.key, self.stored.dtype, shard.shape)
            if not self.reader.verify:
                self.reader.bytes_read += volume(wanted) * data.dtype.itemsize
                yield _cut_piece(wanted, shard.region, data)
                continue
            tiles = enumerate(cut(shard.region, shard.tile))
            parts = {n: _cut_piece(t, shard.region, data) for n, t in tiles if overlap(wanted, t) is not None}
            self.reader.checked(self.name, shard, parts)
            yield from parts.values()


def _cut_piece(part: Region, whole: Region, data: NDArray[Any]) -> Piece:
    """``part`` of ``data``, which is ``whole``."""
    place: tuple[Any, ...] = inside(part, whole)
    return Piece(part, data[(*place, ...)])
