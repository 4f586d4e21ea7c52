"""Bringing arrays into other layouts.

Where every process has what its devices need, shards are cut and put together in its memory. Otherwise a tiny program,
whose parameter has the one layout and whose result has the other, goes through the partitioner like any other: its
search finds the cheapest collectives, and never gathers the whole where another way is. Between meshes that number
devices so differently that no third mesh expresses both, data takes a way over dimensions split among all devices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import DType, array_shape
from shardc.hlo.units import count_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.assemble import assemble, block_of
from shardc.launcher.arrays.layout import ArrayLayout, Region
from shardc.launcher.arrays.pieces import Piece, overlap
from shardc.launcher.arrays.placement import as_sharding, is_sharding, is_spec, layout_of
from shardc.launcher.arrays.trees import map_with_prefix

__all__ = ["Held", "blocks_under", "reshard", "reshard_array", "reshard_to"]

log = logging.getLogger("shardc")

Block = NDArray[np.uint8]
#: Programs that work in more memory than so many bytes give it up after each use.
_KEPT = 1 << 25


def reshard(tree: Any, sharding: Any, *, mesh: Any = None) -> Any:
    """Return arrays in another layout: over other axes, or over another mesh.

    ``tree`` is an `Array`, or a pytree that contains some; other leaves stay as they are. ``sharding`` is one for all,
    or a pytree that is a prefix of ``tree``, in the forms of `array`. A `P` alone is over the array's own mesh. In a
    job *every* process must call it, with the same arrays in the same order. An array that has the layout already
    shares its memory with the result. Raises `InputError` where there is no `Array`, and where shards must travel
    between ranks to a mesh of more or fewer devices.

    >>> x = shardc.array(np.ones((8, 4)), (mesh, P("data")))
    >>> shardc.reshard(x, P(None, "model"))
    shardc.Array(f64[8,4], [{}, {model}])
    """

    def move(leaf: Any, given: Any) -> Any:
        if not isinstance(leaf, Array):
            return leaf
        found.append(leaf)
        own = leaf.sharding.mesh if mesh is None and leaf.sharding is not None and is_spec(given) else mesh
        return reshard_array(leaf, as_sharding(given, leaf.ndim, own))

    found: list[Array] = []
    made = map_with_prefix(move, tree, sharding, is_sharding)
    if not found:
        raise InputError(
            "there is no shardc.Array to reshard",
            fix="make one first: shardc.array(x, (mesh, P(...))); in a traced function use shardc.shard(x, P(...))",
        )
    return made


def reshard_array(array: Array, sharding: Sharding | None, copy: bool | None = None) -> Array:
    """One array under ``sharding``; in a job all processes call it."""
    target = replace(layout_of(array.shape, array._layout.dtype, sharding), name=array.name)
    return reshard_to(array, target, copy)


def reshard_to(array: Array, target: ArrayLayout, copy: bool | None = None) -> Array:
    """``array`` in the layout ``target``, which has its dimensions and element type."""
    array._live()
    source, transport = array._layout, array._transport
    if source.same_data(target) and not copy:
        array._shared = True
        out = Array(target, array._shards, transport)
        out._shared = True
        return out
    if _is_at_hand(source, target, transport):
        if copy is not True:
            array._shared = True
        return assemble(Array, target, Held(array), transport, copy=copy)
    if copy is False:
        raise InputError(f"{array!r} does not have the sharding {target.sharding}, but copy=False was given")
    return _travelled(array, target)


def blocks_under(
    array: Array, target: ArrayLayout, devices: Sequence[int], take: Callable[[int], Block]
) -> list[Block]:
    """Copies of the shards that ``devices`` of this process hold under ``target``, one per distinct shard."""
    log.debug("%r is resharded for a program that needs %s", array, target.sharding)
    if _is_at_hand(array._layout, target, array._transport):
        made: dict[tuple[int, ...], Block] = {}
        held = Held(array)
        for position in dict.fromkeys(target.positions[d] for d in devices):
            made[position], _ = block_of(target, position, held, take, copy=True)
        return [made[target.positions[d]] for d in devices]
    moved = _travelled(array, target)._live()
    return [moved[d] for d in devices]


class Held:
    """The shards of an `Array` on this process, as a source of others."""

    def __init__(self, array: Array) -> None:
        layout, blocks = array._layout, array._live()
        self._layout = layout
        self._pieces: dict[tuple[int, ...], Piece] = {}
        for device in layout.holders.values() if layout.maximal else blocks:
            position = layout.positions[device]
            if device in blocks and position not in self._pieces:
                data = layout.without_padding(blocks[device], position)
                self._pieces[position] = Piece(layout.region(position), data)

    def pieces(self, region: Region) -> Iterator[Piece]:
        found = (self._pieces.get(position) for position in _positions(self._layout, region))
        return (piece for piece in found if piece is not None)


def _positions(layout: ArrayLayout, region: Region) -> Iterator[tuple[int, ...]]:
    """The shards that overlap ``region``."""
    lines = [
        range(s.start // max(c, 1), -(-s.stop // max(c, 1))) for s, c in zip(region, layout.local_dims, strict=True)
    ]
    yield from product(*lines)


@lru_cache(maxsize=4096)
def _covered(
    source: ArrayLayout, target: ArrayLayout, count: int, owners: tuple[int, ...], targets: tuple[int, ...]
) -> bool:
    """Whether each of ``count`` processes has all that its devices need. ``owners`` and ``targets`` say who has
    which."""
    held: list[set[tuple[int, ...]]] = [set() for _ in range(count)]
    for position, owner in zip(source.positions, owners, strict=True):
        held[owner].add(position)
    needed = set(zip(targets, target.positions, strict=True))
    regions = {position: target.region(position) for _, position in needed}
    found = {p: set(_positions(source, r)) if overlap(r, r) or not r else set() for p, r in regions.items()}
    return all(found[position] <= held[owner] for owner, position in needed)


def _is_at_hand(source: ArrayLayout, target: ArrayLayout, transport: Transport) -> bool:
    if transport.process_count == 1:
        return True
    if source.maximal:
        return False
    ranks = transport.process_count
    if target.num_devices < ranks:
        raise InputError(
            f"the new mesh has {count_text(target.num_devices, 'device')}, but the job has {ranks} ranks",
            fix=f"use a mesh of {count_text(source.num_devices, 'device')}, as the array has",
        )
    tables = [tuple(transport.ownership(n).table().tolist()) for n in (source.num_devices, target.num_devices)]
    return _covered(source, target, ranks, *tables)


def _travelled(array: Array, target: ArrayLayout) -> Array:
    """Through programs with collectives, one after another."""
    source = array._layout
    if source.num_devices != target.num_devices or source.sharding is None or target.sharding is None:
        raise InputError(
            f"{array!r} is on {count_text(source.num_devices, 'device')}, but the new sharding on {target.num_devices}",
            fix="use a mesh of equal size, or save a checkpoint and load it over a mesh with a device for each rank",
        )
    for hop in _hops(replace(source, name=""), replace(target, name="")):
        array = hop(array)
    return Array(target, array._live_shards(), array._transport)


@lru_cache(maxsize=1024)
def _hops(source: ArrayLayout, target: ArrayLayout) -> tuple[_Identity | _Permutation, ...]:
    """Programs that lead from one layout to the other; found once for both."""
    assert source.sharding is not None
    assert target.sharding is not None
    common = _on_one_mesh(source.sharding, target.sharding)
    if common is not None:
        return (_Identity(source, target, *common),)
    if source.local_dims == target.local_dims and sorted(source.positions) == sorted(set(target.positions)):
        return (_Permutation(source, target),)
    # The longest dimension over all devices, in the order of each mesh: the same shards, maybe on other devices.
    dimension = int(np.argmax(source.dims))
    here, there = (_spread(layout, dimension) for layout in (source, target))
    assert here.sharding is not None
    assert there.sharding is not None
    hops: list[_Identity | _Permutation] = []
    if not source.same_data(here):
        hops.append(_Identity(source, here, source.sharding, here.sharding))
    if not here.same_data(there):
        hops.append(_Permutation(here, there))
    if not there.same_data(target):
        hops.append(_Identity(there, target, there.sharding, target.sharding))
    return tuple(hops)


def _spread(layout: ArrayLayout, dimension: int) -> ArrayLayout:
    assert layout.sharding is not None
    mesh = layout.sharding.mesh
    axes = DimSharding(tuple(AxisRef(n) for n in mesh.axis_names))
    dims = tuple(axes if d == dimension else DimSharding() for d in range(len(layout.dims)))
    return replace(layout_of(layout.dims, layout.dtype, Sharding(mesh, dims)), name=layout.name)


def _on_one_mesh(a: Sharding, b: Sharding) -> tuple[Sharding, Sharding] | None:
    """Both over one mesh, which may be a third one; None where there is none."""
    from shardc.hlo.ir.build import make_instruction
    from shardc.hlo.text.notations.tiles import tile_sharding
    from shardc.sharding.notations.tile_assignments import derive_mesh, from_tile

    if a.mesh == b.mesh:
        return a, b
    tiles = [tile_sharding(s) for s in (a, b)]
    nobody = make_instruction("parameter", shape=array_shape("f32", *(1,) * a.rank), name="x", index=0)
    try:
        mesh = derive_mesh([(nobody, t) for t in tiles], a.mesh.size)
        found = [from_tile(t, mesh, a.rank) for t in tiles]
    except AnnotationError:
        return None
    if found[0] is None or found[1] is None:
        return None
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class _Identity:
    """The program that returns its parameter, which comes as ``before``, as ``after``, both over one mesh."""

    source: ArrayLayout
    target: ArrayLayout
    before: Sharding
    after: Sharding

    def __call__(self, array: Array) -> Array:
        name = self.source.name
        compiled = _identity(self.source.dims, self.source.dtype, self.before, self.after)
        found = _moved(compiled, array, name)
        return Array(self.target, found._live_shards(), found._transport)


@lru_cache(maxsize=128)
def _identity(dims: tuple[int, ...], dtype: DType, before: Sharding, after: Sharding) -> Any:
    from shardc.hlo.ir.build import Builder, make_module
    from shardc.launcher.driver.compiled import compile_program, job_config
    from shardc.partitioner.program import SourceProgram

    b = Builder("main")
    x = b.parameter(array_shape(dtype, *dims), "x", sharding=before)
    root = b.add("copy", x, sharding=after)
    names = {"arg_names": ("x",), "result_names": ("x",)}
    module = make_module("reshard", b.build(root), mesh=before.mesh, num_partitions=before.mesh.size, **names)
    return compile_program(SourceProgram(module, config=job_config()))


@dataclass(frozen=True, slots=True)
class _Permutation:
    """The program that moves whole shards from device to device: ``before`` and ``after`` differ in who holds which."""

    before: ArrayLayout
    after: ArrayLayout

    def __call__(self, array: Array) -> Array:
        holder = {position: device for device, position in enumerate(self.before.positions)}
        pairs = tuple((holder[position], device) for device, position in enumerate(self.after.positions))
        compiled = _permutation(self.before.local_bytes, pairs)
        found = _moved(compiled, array, self.before.name)
        return Array(self.after, found._live_shards(), found._transport)


@lru_cache(maxsize=128)
def _permutation(nbytes: int, pairs: tuple[tuple[int, int], ...]) -> Any:
    from shardc.hlo.text.reader import read_hlo
    from shardc.launcher.driver.compiled import compile_program, job_config
    from shardc.partitioner.program import SourceProgram

    n = len(pairs)
    sent = ",".join("{" + f"{a},{b}" + "}" for a, b in pairs)
    rows, row = f"u8[{n},{nbytes}]", f"u8[1,{nbytes}]"
    split = f"sharding={{devices=[{n},1]<=[{n}]}}"
    text = f"""HloModule permute_shards, num_partitions={n}
ENTRY main {{
  x = {rows} parameter(0), {split}
  given = {rows} custom-call(x), custom_call_target="Sharding", {split}
  mine = {row} custom-call(given), custom_call_target="SPMDFullToShardShape", sharding={{manual}}
  sent = {row} collective-permute(mine), channel_id=1, source_target_pairs={{{sent}}}
  theirs = {row} custom-call(sent), custom_call_target="Sharding", sharding={{manual}}
  ROOT y = {rows} custom-call(theirs), custom_call_target="SPMDShardToFullShape", {split}
}}
"""
    return compile_program(SourceProgram(read_hlo(text, "permute_shards"), config=job_config()))


def _moved(compiled: Any, array: Array, name: str) -> Array:
    """The result of a program that takes and returns the shards of ``array``."""
    found: Array = compiled.run([_relabelled(array, compiled.executable.arguments[0], name)])[0]
    if compiled.executable.arena_bytes + found._layout.local_bytes > _KEPT:
        compiled.release()
    return found


def _relabelled(array: Array, spec: Any, name: str) -> Array:
    """The same shards as what the program takes for its argument."""
    layout = replace(ArrayLayout.of(spec, array._layout.num_devices), name=name)
    if layout.local_bytes != array._layout.local_bytes:
        raise AssertionError(f"{array!r} as {layout}")
    return Array(layout, array._live_shards(), array._transport)
