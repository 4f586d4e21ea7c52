"""Shardings as XLA's messages: tile assignments, which every client reads."""

from __future__ import annotations

from functools import lru_cache

from shardc.frontends.pjrt.protos.messages import OpMetadataProto, OpShardingProto
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding
from shardc.hlo.text.notations.tiles import tile_reduction, tile_sharding

__all__ = ["sharding_message"]

_KINDS = {"replicated": 0, "maximal": 1, "tuple": 2, "tiled": 3, "manual": 4, "unknown": 5, "unreduced": 6}


def sharding_message(sharding: AnySharding) -> OpShardingProto:
    """The message of a sharding, of a tuple of them, or of one that is not known (None)."""
    if isinstance(sharding, tuple):
        return OpShardingProto(type=_KINDS["tuple"], tuple_shardings=tuple(map(sharding_message, sharding)))
    if sharding is None:
        return OpShardingProto(type=_KINDS["unknown"])
    return _tile_message(tile_sharding(sharding) if isinstance(sharding, Sharding) else sharding)


@lru_cache(maxsize=4096)
def _tile_message(tile: TileSharding) -> OpShardingProto:
    reduction = tile_reduction(tile)
    reduced_by = OpMetadataProto(op_type="sdy::reduction_op", op_name=reduction.upper())
    return OpShardingProto(
        type=_KINDS[tile.kind],
        tile_assignment_dimensions=tile.tile or ((1,) if tile.kind == "maximal" else ()),
        tile_assignment_devices=tile.devices,
        replicate_on_last_tile_dim=tile.last_tile_dim_replicate,
        metadata=() if reduction == "sum" else (reduced_by,),
        last_tile_dims=() if tile.last_tile_dim_replicate else tuple(_KINDS[name] for name in tile.subgroups),
        iota_reshape_dims=tile.reshape,
        iota_transpose_perm=tile.transpose or tuple(range(len(tile.reshape))),
    )
