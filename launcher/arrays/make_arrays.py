"""Making a `shardc.Array`: from a value, from a callback per shard, or from each process's own data. None of these
functions communicates. Every process provides the shards of its own devices, from a `PieceSource` that contains at
least those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.types import DType
from shardc.hlo.masked_arrays import refuse_masked
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.assemble import assemble
from shardc.launcher.arrays.layout import ArrayLayout, Region
from shardc.launcher.arrays.pieces import Piece, PieceSource, Whole, overlap, region_text
from shardc.launcher.arrays.placement import as_dtype, as_sharding, is_sharding, layout_of
from shardc.launcher.arrays.trees import map_with_prefix
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.jobs.job import job_transport

__all__ = [
    "array",
    "array_from_callback",
    "array_from_process_local_data",
    "array_from_shards",
    "array_of",
    "device_put",
]

Block = NDArray[np.uint8]


def array(value: Any, sharding: Any = None, *, mesh: Any = None, dtype: Any = None, copy: bool | None = None) -> Array:
    """Make an `Array` of a global value, which is the same on every process.

    ``value`` is a NumPy array, Python numbers and lists (int64 and float64, unless ``dtype`` is given), or anything
    with ``__dlpack__`` on the CPU. It may also be an `Array`, which is resharded, or a JAX array, which is read shard
    by shard. ``sharding`` is `P` over ``mesh``, ``(mesh, P(...))``, a sharding such as ``x.sharding``, or JAX's
    NamedSharding. Without it the array is replicated over ``mesh``, and without both it is on one device.

    Shards that are contiguous in ``value`` share its memory, unless ``copy=True``: do not write to ``value`` while they
    are used. ``copy=False`` raises `InputError` where a copy is needed. Nothing is sent.

    >>> x = shardc.array(np.ones((8, 4), np.float32), (mesh, P("data")))
    >>> x
    shardc.Array(f32[8,4], [{data}, {}])
    """
    if isinstance(value, Array):
        return _again(value, sharding, mesh, dtype, copy)
    source, dims, held = _source_of(value, dtype)
    layout = layout_of(dims, held, as_sharding(sharding, len(dims), mesh))
    return array_of(layout, source, copy=copy)


def device_put(tree: Any, shardings: Any = None, *, mesh: Any = None) -> Any:
    """Make arrays of all leaves of a pytree by `array`, like ``jax.device_put``.

    ``shardings`` is one for all leaves, or a pytree that is a prefix of ``tree``, in the forms of `array`. Leaves that
    are an `Array` are resharded, so in a job every process must call it. None and typed PRNG keys stay as they are.
    Raises `AnnotationError` for a PRNG key that would be split.

    >>> tree = {"w": np.ones((4, 8)), "b": np.zeros(8)}
    >>> shardc.device_put(tree, {"w": P(None, "model"), "b": P()}, mesh=mesh)["w"]
    shardc.Array(f64[4,8], [{}, {model}])
    """

    def put(leaf: Any, given: Any) -> Any:
        if leaf is None:
            return None
        if "key<" not in str(getattr(leaf, "dtype", "")):
            return array(leaf, given, mesh=mesh)
        sharding = as_sharding(given, leaf.ndim, mesh)
        if sharding is not None and not sharding.is_replicated:
            raise AnnotationError(
                "PRNG keys cannot be sharded", fix="replicate them, or shard jax.random.key_data(keys)"
            )
        return leaf

    return map_with_prefix(put, tree, shardings, is_sharding)


def array_from_callback(
    shape: Sequence[int], dtype: Any, sharding: Any, callback: Callable[[Region], Any], *, mesh: Any = None
) -> Array:
    """Make an `Array` whose elements ``array[index]`` are the result of ``callback(index)``.

    ``index`` is a tuple of slices with start and stop. The callback is called once for each distinct shard of this
    process, in the order of its devices. Other processes may call theirs at other times. Nothing is sent. Raises
    `InputError` for data of another shape or element type; exceptions of the callback pass through.

    >>> whole = np.arange(8.0)
    >>> x = shardc.array_from_callback((8,), "float64", (mesh, P("data")), lambda index: whole[index])
    >>> x.addressable_shards[2].data
    array([4., 5., 6., 7.])
    """
    dims = _dims(shape)
    layout = layout_of(dims, as_dtype(dtype), as_sharding(sharding, len(dims), mesh))
    return array_of(layout, _Called(callback, layout.dtype))


def array_from_shards(
    shape: Sequence[int] | int, sharding: Any, shards: Mapping[int, Any], *, mesh: Any = None
) -> Array:
    """Make an `Array` from ``{device: data}``, the shards of this process's devices.

    Parts have no padding: the last shard of an uneven dimension is shorter. Where devices hold the same shard, one of
    them is enough. Nothing is sent. Raises `InputError` for a missing shard, for one that does not fit, and for copies
    that differ.

    >>> parts = {0: np.zeros(4), 2: np.ones(4)}
    >>> np.asarray(shardc.array_from_shards((8,), (mesh, P("data")), parts))
    array([0., 0., 0., 0., 1., 1., 1., 1.])
    """
    if not isinstance(shards, Mapping):
        raise InputError(
            f"the shards are {kind_text(shards)}, not a dict",
            fix="give {device: data}: dict(enumerate(shards)) for a list of all devices' shards",
        )
    if not shards:
        raise InputError("no shards were given", fix="give a shard for each of this process's devices")
    arrays = {d: _plain(a, f"the shard of device {d}") for d, a in sorted(shards.items())}
    held = as_dtype(next(iter(arrays.values())).dtype)
    dims = _dims(shape)
    layout = layout_of(dims, held, as_sharding(sharding, len(dims), mesh))
    pieces = {d: _given_piece(layout, d, a) for d, a in arrays.items()}
    _need_equal_copies(pieces)
    return array_of(layout, _Shards(tuple(pieces.values())))


def _dims(shape: Sequence[int] | int) -> tuple[int, ...]:
    """A shape, which may be one number as in NumPy."""
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _need_equal_copies(pieces: Mapping[int, Piece]) -> None:
    """Raise `InputError` where devices that hold the same region were given different data."""
    firsts: dict[str, int] = {}
    for device, piece in pieces.items():
        first = firsts.setdefault(region_text(piece.region), device)
        if first != device and pieces[first].data.tobytes() != piece.data.tobytes():
            raise InputError(
                f"devices {first} and {device} hold the same shard {region_text(piece.region)}, but their data differ",
                where=f"the shard of device {device}",
                fix="give equal data, or one of them alone; to keep different values, split the array over that axis",
            )


def _given_piece(layout: ArrayLayout, device: int, data: NDArray[Any]) -> Piece:
    where = f"the shard of device {device}"
    if not 0 <= device < layout.num_devices:
        raise InputError(
            "there is no such device", where=where, fix=f"devices count from 0 to {layout.num_devices - 1}"
        )
    region = layout.region(layout.positions[device])
    expected = tuple(s.stop - s.start for s in region)
    if data.shape != expected or data.dtype != layout.dtype.numpy:
        raise InputError(
            f"the shard {region_text(region)} was given as {data.dtype}{list(data.shape)}",
            where=where,
            fix=f"give {layout.dtype.numpy}{list(expected)}",
        )
    return Piece(region, data)


def array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Sequence[int] | None = None, *, mesh: Any = None
) -> Array:
    """Make an `Array` from one part per process: the smallest box around the shards of its devices.

    Dimensions that are not split among processes are complete in ``local_data``; with one process it is the global
    value. Without ``global_shape`` all processes must have parts of equal size. Otherwise their arrays have different
    shapes, and the first program or `gather` that takes these raises an error on all of them. As in
    ``jax.make_array_from_process_local_data``, a dimension with the global length is complete, not a part. Nothing is
    sent. Raises `InputError` for data of another shape.

    >>> rows = np.ones((8, 4), np.float32)  # the rows that this process loaded
    >>> shardc.array_from_process_local_data((mesh, P("data")), rows).shape
    (8, 4)
    """
    if is_sharding(local_data) or isinstance(sharding, np.ndarray):
        raise InputError(
            "the sharding is the first argument, the data are the second",
            where="array_from_process_local_data",
            fix="swap them, as in jax.make_array_from_process_local_data",
        )
    data = _plain(local_data, "the local data")
    found = as_sharding(sharding, data.ndim, mesh)
    counts = (1,) * data.ndim if found is None else found.num_shards()
    probe = layout_of(counts, as_dtype(data.dtype), found)  # one element per shard: its regions count shards
    mine = [probe.positions[d] for d in job_transport(job_config()).ownership(probe.num_devices).devices(_process())]
    box = [(min(p[k] for p in mine), max(p[k] for p in mine) + 1) for k in range(data.ndim)]
    if global_shape is None:
        global_shape = [n * k // (hi - lo) for n, k, (lo, hi) in zip(data.shape, counts, box, strict=True)]
    layout = layout_of(global_shape, probe.dtype, found)
    first, last = layout.region(lo for lo, _ in box), layout.region(hi - 1 for _, hi in box)
    part = tuple(
        slice(0, n) if size == n else slice(a.start, b.stop)
        for n, size, a, b in zip(layout.dims, data.shape, first, last, strict=True)
    )
    expected = tuple(s.stop - s.start for s in part)
    if expected != data.shape:
        raise InputError(
            f"the local data have shape {list(data.shape)}, but this process holds the part {region_text(part)} "
            f"of {list(layout.dims)}",
            where=f"process {_process()}",
            fix=f"give shape {list(expected)}, the data of all devices of this process, or the global shape",
        )
    return array_of(layout, _Shards((Piece(part, data),)))


def array_of(
    layout: ArrayLayout, source: PieceSource, *, copy: bool | None = None, transport: Transport | None = None
) -> Array:
    """An `Array` whose shards on this process are read from ``source``; the same shard is read once."""
    return assemble(Array, layout, source, transport or job_transport(job_config()), copy=copy)


@dataclass(frozen=True, slots=True)
class _Shards:
    """A source of pieces that are equal or apart."""

    found: tuple[Piece, ...]

    def pieces(self, region: Region) -> Iterator[Piece]:
        seen: set[tuple[tuple[int, int], ...]] = set()
        for piece in self.found:
            key = tuple((s.start, s.stop) for s in piece.region)
            if key not in seen and overlap(region, piece.region) is not None:
                seen.add(key)
                yield piece


@dataclass(frozen=True, slots=True)
class _Called:
    """A source that asks the user."""

    callback: Callable[[Region], Any]
    dtype: DType

    def pieces(self, region: Region) -> Iterable[Piece]:
        where = f"the callback for {region_text(region)}"
        given = self.callback(region)
        if given is None:
            raise InputError("the callback returned None", where=where, fix="return the array of that region")
        data = _plain(given, where)
        if isinstance(data, np.ndarray) and data.dtype != self.dtype.numpy:
            raise InputError(
                f"the callback returned an array of {data.dtype}, not {self.dtype.numpy}",
                where=where,
                fix=f"convert it: x.astype({self.dtype.numpy.name!r})",
            )
        expected = tuple(s.stop - s.start for s in region)
        if data.shape != expected:
            raise InputError(
                f"the callback returned an array of shape {list(data.shape)}, not {list(expected)}",
                where=where,
                fix="return the part of the array that the callback's argument, a tuple of slices, selects",
            )
        return (Piece(region, data),)


def _source_of(value: Any, dtype: Any) -> tuple[PieceSource, tuple[int, ...], DType]:
    """Where ``value`` can be read, its shape and element type (``dtype`` if given, converted)."""
    wanted = None if dtype is None else as_dtype(dtype)
    if "key<" in str(getattr(value, "dtype", "")):
        as_dtype(value.dtype)
    shards = getattr(value, "addressable_shards", None)
    if shards is not None and hasattr(value, "is_fully_addressable"):
        held = wanted or as_dtype(value.dtype)
        found = tuple(_jax_piece(s, value.shape, held) for s in shards)
        return _Shards(found), tuple(value.shape), held
    data = _plain(value, "the value", wanted)
    return Whole(data), data.shape, as_dtype(data.dtype)


def _jax_piece(shard: Any, dims: Sequence[int], dtype: DType) -> Piece:
    """One device's part of an array of JAX's; on the CPU it is seen without a copy."""
    region = tuple(slice(*s.indices(n)[:2]) for s, n in zip(shard.index, dims, strict=True))
    return Piece(region, np.asarray(shard.data).astype(dtype.numpy, copy=False))


def _plain(value: Any, where: str, dtype: DType | None = None) -> NDArray[Any]:
    """``value`` as NumPy: what it is already, by DLPack, or as NumPy reads it."""
    wanted = None if dtype is None else dtype.numpy
    refuse_masked(value, where)
    if not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__dlpack__"):
        from shardc.launcher.arrays.dlpack import from_dlpack

        value = from_dlpack(value, where)
    try:
        out = np.asarray(value) if wanted is None else np.asarray(value).astype(wanted, copy=False)
    except (TypeError, ValueError, OverflowError) as e:
        fix = "give an array of numbers, or nested lists of equal lengths"
        raise InputError(f"{type(value).__name__} is not an array: {e}", where=where, fix=fix) from None
    if not out.dtype.isnative:
        out = out.astype(out.dtype.newbyteorder("="))
    as_dtype(out.dtype, where)
    return out


def _again(value: Array, sharding: Any, mesh: Any, dtype: Any, copy: bool | None) -> Array:
    """An `Array` of an `Array`."""
    from shardc.launcher.arrays.reshard import Held, reshard_array

    if dtype is not None and as_dtype(dtype).numpy != value.dtype:
        value = value.astype(dtype)
    if sharding is None and mesh is None:
        return array_of(value._layout, Held(value), copy=True, transport=value._transport) if copy else value
    return reshard_array(value, as_sharding(sharding, value.ndim, mesh), copy=copy)


def _process() -> int:
    return job_transport(job_config()).process_index
