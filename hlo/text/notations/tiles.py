"""Shardings and device groups as HLO text writes them.

Shardings come in three notations, see Xu et al., GSPMD (arXiv 2105.04663) and Shardy's documents:

* V1, explicit devices: ``{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}``
* V2, a transposed iota: ``{devices=[2,4]<=[4,2]T(1,0)}``
* V3, a named mesh: ``{mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}], replicated={..}, unreduced=max{..}}``

V1 and V2 become `TileSharding`, V3 becomes `Sharding` with a mesh of its own. Replica groups are explicit lists,
iotas, or axes of a named mesh; ``source_target_pairs`` are explicit.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from shardc.hlo.errors import Location, ParseError
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs, Pairs, ReplicaGroups
from shardc.hlo.ir.iota import device_order, remaining_axes
from shardc.hlo.ir.mesh import MOST_DEVICES
from shardc.hlo.ir.sharding import AnySharding, AxisRef, Sharding, TileSharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.text.notations.named_mesh import parse_mesh, parse_mesh_axes, parse_mesh_sharding, print_mesh_sharding
from shardc.hlo.text.scanner import Scanner, move_error

__all__ = [
    "parse_groups",
    "parse_pairs",
    "parse_sharding",
    "print_groups",
    "print_pairs",
    "print_sharding",
    "tile_sharding",
]

_WORD = re.compile(r"\s*([a-z_]+)")
_INTS = re.compile(r"\s*((?:\d+\s*,\s*)*\d+)")
_DIMS = re.compile(r"\s*\[\s*((?:\d+\s*,\s*)*\d+)\s*\]")
_PERMUTATION = re.compile(r"\s*T\(\s*((?:\d+\s*,\s*)*\d+)\s*\)")
_NUMBER = re.compile(r"\s*(\d+)")
_SUBGROUPS = ("replicated", "manual", "unreduced")
_METADATA_FIELD = (
    r"(?:op_type|op_name|source_file|deduplicated_name|scheduling_name|metadata_payload)="
    r'\s*(?:"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')|'
    r"(?:source_line|source_end_line|source_column|source_end_column|stack_frame_id)=\s*-?\d+|"
    r"profile_type=\s*\{[\d,\s]*\}"
)
_ONE_METADATA = rf"\{{\s*(?:(?:{_METADATA_FIELD})\s*(?:,?\s*(?:{_METADATA_FIELD})\s*)*)?\}}"
_METADATA = re.compile(rf"{_ONE_METADATA}|\{{\s*{_ONE_METADATA}\s*(?:,\s*{_ONE_METADATA}\s*)*\}}", re.S)
_REDUCTION_METADATA = re.compile(r'op_type="sdy::reduction_op"\s*op_name="(\w+)"')


# --- shardings ----------------------------------------------------------------------------------------------


def parse_sharding(
    text: str, location: Location | None = None, shape: Shape | None = None
) -> TileSharding | Sharding | tuple[TileSharding | Sharding, ...]:
    """What ``sharding=`` says, braces included; a list in braces gives one sharding per leaf of a tuple.

    ``shape`` gives the rank for the V3 forms that name no dimensions (``{mesh['x'=2], replicated}``).

    >>> parse_sharding("{devices=[2,1,2]<=[4] last_tile_dim_replicate}").tile
    (2, 1, 2)
    """
    scanner = Scanner(text)
    try:
        result = _sharding(scanner, None if shape is None else tuple(leaf.rank for leaf in shape.leaves()))
        if not scanner.at_end():
            raise scanner.error(f"unexpected text after the sharding: {scanner.excerpt()}")
    except ParseError as e:
        raise move_error(e, location) from None
    return result


def _sharding(
    scanner: Scanner, ranks: tuple[int, ...] | None
) -> TileSharding | Sharding | tuple[TileSharding | Sharding, ...]:
    scanner.expect("{", "at the start of a sharding")
    if scanner.peek() not in ("{", "}"):
        return _one_sharding(scanner, ranks[0] if ranks and len(set(ranks)) == 1 else None)
    elements: list[TileSharding | Sharding] = []
    while not scanner.accept("}"):
        scanner.expect("{", "at the start of a tuple element's sharding")
        elements.append(_one_sharding(scanner, ranks[len(elements)] if ranks and len(elements) < len(ranks) else None))
        if scanner.accept("}"):
            break
        scanner.expect(",", "between the shardings of a tuple")
    return tuple(elements)


def _one_sharding(scanner: Scanner, rank: int | None) -> TileSharding | Sharding:
    """One sharding behind its opening brace, up to and with the closing one."""
    named = parse_mesh_sharding(scanner, rank)
    if named is not None:
        return named
    fields = _TileFields()
    while not scanner.accept("}"):
        start = scanner.pos
        word = scanner.take(_WORD, "a part of a sharding (devices=, replicated, manual, maximal, ...)").group(1)
        reader = _PARTS.get(word)
        if reader is None:
            raise scanner.error(f"unknown part {word!r} of a sharding", at=start, fix=f"known: {', '.join(_PARTS)}")
        reader(scanner, fields, word)
    return fields.finish(scanner)


class _TileFields:
    """Parts of a tile assignment while it is read."""

    def __init__(self) -> None:
        self.kind = ""
        self.tile: tuple[int, ...] = ()
        self.devices: tuple[int, ...] = ()
        self.reshape: tuple[int, ...] = ()
        self.transpose: tuple[int, ...] = ()
        self.subgroups: tuple[str, ...] = ()
        self.replicate_last = False
        self.suffix: list[str] = []

    def finish(self, scanner: Scanner) -> TileSharding:
        suffix = " ".join(self.suffix)
        if self.kind == "maximal":
            if len(self.devices) != 1:
                raise scanner.error("a maximal sharding names one device", fix="write {maximal device=0}")
            return TileSharding("maximal", devices=self.devices, suffix=suffix)
        if self.kind != "tiled":
            if self.tile or not self.kind or self.subgroups:
                raise scanner.error("a sharding needs devices=, replicated, manual, unreduced, unknown or maximal")
            return TileSharding(self.kind, suffix=suffix)
        self._check(scanner)
        return TileSharding(
            "tiled",
            self.tile,
            self.devices,
            self.reshape,
            self.transpose,
            self.subgroups,
            self.replicate_last,
            suffix,
        )

    def _check(self, scanner: Scanner) -> None:
        count = math.prod(self.tile)
        if count > MOST_DEVICES:
            raise scanner.error(f"the sharding covers {count:,} devices", fix=f"use at most {MOST_DEVICES:,} devices")
        if len(self.subgroups) > len(self.tile):
            raise scanner.error(f"{len(self.subgroups)} subgroups need as many tile dimensions, found {self.tile}")
        if 0 in self.tile:
            raise scanner.error("a tile dimension is 0", fix="write 1 for a dimension that is not split")
        if self.reshape:
            if math.prod(self.reshape) != count:
                listed = f"<=[{','.join(map(str, self.reshape))}]"
                raise scanner.error(
                    f"the sharding has {count} tiles, but {listed} lists {math.prod(self.reshape)} devices",
                    fix="list as many devices as there are tiles, copies by last_tile_dim_replicate included",
                )
            if self.transpose and sorted(self.transpose) != list(range(len(self.reshape))):
                raise scanner.error(f"T{self.transpose} is not a permutation of the iota's dimensions")
            return
        if len(self.devices) != count:
            raise scanner.error(f"{count} tiles, but {len(self.devices)} devices are listed")
        if len(set(self.devices)) != count:
            raise scanner.error("a device is listed twice")
        if count == 1:
            raise scanner.error("a tiled sharding needs more than one device", fix="write {maximal device=0}")


def _ints(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _read_kind(scanner: Scanner, fields: _TileFields, word: str) -> None:
    if fields.kind and not (fields.kind == "tiled" and word == "maximal"):
        raise scanner.error(f"a sharding cannot be both {fields.kind} and {word}")
    fields.kind = word


def _read_devices(scanner: Scanner, fields: _TileFields, word: str) -> None:
    scanner.expect("=", f"after {word}")
    if word == "device":
        fields.devices = (int(scanner.take(_NUMBER, "a device number").group(1)),)
        return
    fields.kind = fields.kind or "tiled"
    fields.tile = _ints(scanner.take(_DIMS, "tile dimensions such as [2,4]").group(1))
    if scanner.accept("<="):
        fields.reshape, fields.transpose = _iota(scanner)
    else:
        fields.devices = _ints(scanner.take(_INTS, "a list of devices or <=[...]").group(1))


def _iota(scanner: Scanner) -> tuple[tuple[int, ...], tuple[int, ...]]:
    reshape = _ints(scanner.take(_DIMS, "the iota's dimensions such as [4,2]").group(1))
    found = scanner.match(_PERMUTATION) if len(reshape) > 1 else None
    if found is None and len(reshape) > 1:
        raise scanner.error(f"an iota of {len(reshape)} dimensions needs a permutation", fix="write [4,2]T(1,0)")
    return reshape, _ints(found.group(1)) if found is not None else ()


def _read_replicate_last(scanner: Scanner, fields: _TileFields, word: str) -> None:
    del scanner, word
    fields.subgroups, fields.replicate_last = ("replicated",), True


def _read_subgroups(scanner: Scanner, fields: _TileFields, word: str) -> None:
    scanner.expect("=", f"after {word}")
    inner = scanner.take_bracketed()[1:-1]
    names = tuple(n.strip() for n in inner.split(",")) if inner.strip() else ()
    for n in names:
        if n not in _SUBGROUPS:
            raise scanner.error(f"unknown subgroup {n!r}", fix=f"known: {', '.join(_SUBGROUPS)}")
    fields.subgroups = names


def _read_group(scanner: Scanner, fields: _TileFields, word: str) -> None:
    fields.suffix.append(f"{word} {int(scanner.take(_NUMBER, 'a group number').group(1))}")


def _read_metadata(scanner: Scanner, fields: _TileFields, word: str) -> None:
    scanner.expect("=", f"after {word}")
    scanner.skip_space()
    start = scanner.pos
    text = scanner.take_bracketed()
    if not _METADATA.fullmatch(text):
        raise scanner.error(f"malformed metadata of a sharding: {text}", at=start)
    fields.suffix.append(f"{word}={text}")


_PARTS = {
    "devices": _read_devices,
    "device": _read_devices,
    "last_tile_dim_replicate": _read_replicate_last,
    "last_tile_dims": _read_subgroups,
    "replicated": _read_kind,
    "manual": _read_kind,
    "unreduced": _read_kind,
    "unknown": _read_kind,
    "maximal": _read_kind,
    "shard_as": _read_group,
    "shard_like": _read_group,
    "metadata": _read_metadata,
}


def print_sharding(sharding: AnySharding, shape: Shape | None = None, *, named: bool = False) -> str:
    """The text behind ``sharding=``. Axis-based shardings print as V2 (V1 when their device ids have no iota), or
    with ``named`` as V3. An unknown leaf (None) prints as ``{unknown}``. ``shape`` is not needed today; it is there
    for notations that depend on the value's type.
    """
    del shape
    if isinstance(sharding, tuple):
        return "{" + ", ".join(print_sharding(s, named=named) for s in sharding) + "}"
    if sharding is None:
        return "{unknown}"
    return _print_one(sharding, named)


@lru_cache(maxsize=16384)
def _print_one(sharding: Sharding | TileSharding, named: bool) -> str:
    if isinstance(sharding, Sharding):
        return print_mesh_sharding(sharding) if named else _print_tile(tile_sharding(sharding))
    return _print_tile(sharding)


def _print_tile(s: TileSharding) -> str:
    suffix = " " + s.suffix if s.suffix else ""
    if s.kind == "maximal":
        return f"{{maximal device={s.devices[0]}{suffix}}}"
    if s.kind != "tiled":
        return f"{{{s.kind}{suffix}}}"
    text = "devices=[" + ",".join(map(str, s.tile)) + "]"
    text += _print_iota(s.reshape, s.transpose) if s.reshape else ",".join(map(str, s.devices))
    if s.last_tile_dim_replicate:
        text += " last_tile_dim_replicate"
    elif s.subgroups:
        text += " last_tile_dims={" + ", ".join(s.subgroups) + "}"
    return "{" + text + suffix + "}"


def _print_iota(reshape: tuple[int, ...], transpose: tuple[int, ...]) -> str:
    if not transpose:
        return f"<=[{math.prod(reshape)}]"
    return f"<=[{','.join(map(str, reshape))}]T({','.join(map(str, transpose))})"


@lru_cache(maxsize=16384)
def tile_sharding(sharding: Sharding) -> TileSharding:
    """The tile assignment that places data as an axis-based sharding does; open dimensions count as closed.

    Subgroups come in the order manual, unreduced, replicated. A reduction other than sum is kept in the suffix.

    >>> tile_sharding(Sharding.of(Mesh({"x": 2, "y": 4}), "y"))  # {devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}
    """
    mesh = sharding.mesh
    if mesh.is_maximal:
        assert mesh.device_ids is not None
        return TileSharding("maximal", devices=mesh.device_ids[:1])
    dims = [list(d.axes) for d in sharding.dims]
    manual = [AxisRef(n) for n in sharding.manual]
    unreduced = list(sharding.unreduced)
    suffix = _reduction_suffix(sharding)
    if mesh.axes and len(manual) == len(mesh.axes):
        return TileSharding("manual")
    rest = remaining_axes(mesh, [a for d in dims for a in d] + manual + unreduced)
    free = math.prod(a.extent(mesh) for a in rest)
    tile = [math.prod(a.extent(mesh) for a in d) for d in dims]
    groups: list[tuple[str, list[AxisRef]]] = [("manual", manual), ("unreduced", unreduced), ("replicated", rest)]
    extents = [(name, axes, math.prod(a.extent(mesh) for a in axes)) for name, axes in groups]
    present = [(name, axes, n) for name, axes, n in extents if n > 1]
    if math.prod(tile) * free == free and [name for name, _, _ in present] in ([], ["replicated"]):
        return TileSharding("replicated")
    if not dims and [name for name, _, _ in present] == ["unreduced"]:
        return TileSharding("unreduced", suffix=suffix)
    form, devices = device_order(mesh, [*dims, *(axes for _, axes, _ in present)])
    subgroups = tuple(name for name, _, _ in present)
    return TileSharding(
        "tiled",
        (*tile, *(n for _, _, n in present)),
        devices,
        form.reshape if form is not None else (),
        form.transpose if form is not None else (),
        subgroups,
        subgroups == ("replicated",),
        suffix,
    )


def _reduction_suffix(sharding: Sharding) -> str:
    if not sharding.unreduced or sharding.reduction == "sum":
        return ""
    return f'metadata={{op_type="sdy::reduction_op" op_name="{sharding.reduction.upper()}"}}'


def tile_reduction(sharding: TileSharding) -> str:
    """How the unreduced parts of a tile assignment combine: ``sum``, ``max`` or ``min``."""
    found = _REDUCTION_METADATA.search(sharding.suffix)
    return found.group(1).lower() if found else "sum"


# --- groups -------------------------------------------------------------------------------------------------


def parse_groups(text: str, location: Location | None = None) -> ReplicaGroups:
    """What ``replica_groups=`` says: ``{{0,1},{2,3}}``, ``[2,4]<=[4,2]T(1,0)`` or ``mesh['x'=2,'y'=4] {'y'}``."""
    scanner = Scanner(text)
    try:
        groups = _groups(scanner)
        if not scanner.at_end():
            raise scanner.error(f"unexpected text after replica groups: {scanner.excerpt()}")
    except ParseError as e:
        raise move_error(e, location) from None
    return groups


def _groups(scanner: Scanner) -> ReplicaGroups:
    start = scanner.peek()
    if start == "m":
        mesh = parse_mesh(scanner)
        scanner.accept(",")
        return AxisGroups(mesh, parse_mesh_axes(scanner, mesh))
    if start == "[":
        dims = _ints(scanner.take(_DIMS, "[groups,size]").group(1))
        if math.prod(dims) > MOST_DEVICES:
            what = f"the replica groups cover {math.prod(dims):,} devices"
            raise scanner.error(what, fix=f"use at most {MOST_DEVICES:,} devices")
        scanner.expect("<=", "in iota replica groups")
        reshape, transpose = _iota(scanner)
        if len(dims) != 2 or math.prod(dims) != math.prod(reshape):
            raise scanner.error(f"replica groups [{','.join(map(str, dims))}] do not fit an iota of {reshape}")
        if transpose and sorted(transpose) != list(range(len(reshape))):
            raise scanner.error(f"T{transpose} is not a permutation of the iota's dimensions")
        return IotaGroups(dims[0], dims[1], reshape, transpose)
    return ListGroups(_int_lists(scanner))


_EMPTY = re.compile(r"\s*\{\s*\}")


def _int_lists(scanner: Scanner) -> tuple[tuple[int, ...], ...]:
    scanner.expect("{", "at the start of a list of groups")
    lists: list[tuple[int, ...]] = []
    if scanner.accept("}"):
        return ()
    while True:
        if scanner.match(_EMPTY):
            lists.append(())
        else:
            scanner.expect("{", "at the start of a group")
            lists.append(_ints(scanner.take(_INTS, "device numbers").group(1)))
            scanner.expect("}", "at the end of a group")
        if scanner.accept("}"):
            return tuple(lists)
        scanner.expect(",", "between groups")


def parse_pairs(text: str, location: Location | None = None) -> ListPairs:
    """What ``source_target_pairs=`` says: ``{{0,1},{1,0}}``."""
    scanner = Scanner(text)
    try:
        lists = _int_lists(scanner)
        for pair in lists:
            if len(pair) != 2:
                raise scanner.error(f"a source-target pair has two devices, found {pair}", at=0)
    except ParseError as e:
        raise move_error(e, location) from None
    return ListPairs(tuple((p[0], p[1]) for p in lists))


@lru_cache(maxsize=4096)
def print_groups(groups: ReplicaGroups) -> str:
    """The text behind ``replica_groups=``; groups over mesh axes print as an iota where their devices allow it."""
    if isinstance(groups, IotaGroups):
        return f"[{groups.num_groups},{groups.group_size}]{_print_iota(groups.reshape, groups.transpose)}"
    if isinstance(groups, AxisGroups):
        members = list(groups.axes)
        form, _ = device_order(groups.mesh, [remaining_axes(groups.mesh, members), members])
        if form is not None:
            return f"[{groups.num_groups},{groups.group_size}]{form}"
    return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups.expand()) + "}"


def print_pairs(pairs: Pairs) -> str:
    """The text behind ``source_target_pairs=``, always explicit."""
    assert isinstance(pairs, AxisPairs | ListPairs)
    return "{" + ",".join(f"{{{s},{t}}}" for s, t in pairs.expand()) + "}"
