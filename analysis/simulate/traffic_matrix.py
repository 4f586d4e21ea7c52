"""Who sends how much to whom in a simulated step, by blocks of neighbouring devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.groups import AxisGroups, ListPairs, Pairs, ReplicaGroups, groups_grid

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulated_step import SimulatedStep

__all__ = ["traffic_matrix"]

_EXCHANGES = frozenset({"all-to-all", "ragged-all-to-all"})

_Groups = ReplicaGroups | Pairs


def block_size(devices: int, blocks: int) -> int:
    """How many devices a block has so that there are at most ``blocks``: all the same where that makes few blocks less,
    else the last one has fewer."""
    least = -(-devices // max(1, blocks))
    even = next((n for n in range(least, 2 * least) if devices % n == 0), None)
    return max(1, least if even is None else even)


def traffic_matrix(simulation: SimulatedStep, blocks: int) -> NDArray[np.float64]:
    """See `Simulation.traffic_matrix`. Works on one row per device, so 100,000 devices are fine."""
    devices = simulation.devices
    each = block_size(devices, blocks)
    blocks = -(-devices // each)
    block_of = np.arange(devices) // each
    sent: dict[tuple[_Groups | None, bool], float] = {}
    for work, groups in zip(simulation.work, simulation.groups, strict=True):
        if work.kind == "collective" and work.wire_bytes:
            key = (groups, work.opcode in _EXCHANGES)
            sent[key] = sent.get(key, 0.0) + float(work.wire_bytes) * work.count
    out = np.zeros((blocks, blocks))
    for (groups, exchange), nbytes in sent.items():
        out += nbytes * _pattern(groups, exchange, block_of, blocks)
    return out


def _pattern(groups: _Groups | None, exchange: bool, block_of: NDArray[np.int64], blocks: int) -> NDArray[np.float64]:
    """Shares of what one device sends, from block to block."""
    out = np.zeros((blocks, blocks))
    if groups is not None and not isinstance(groups, ReplicaGroups):
        pairs = np.array(groups.expand() if isinstance(groups, ListPairs) else _axis_pairs(groups), np.int64)
        pairs = pairs.reshape(-1, 2)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        np.add.at(out, (block_of[pairs[:, 0]], block_of[pairs[:, 1]]), 1.0)
        return out
    for grid in _grids(groups, len(block_of)):
        size = grid.shape[1]
        if size < 2:
            continue
        at = block_of[grid]
        if not exchange:
            np.add.at(out, (at, np.roll(at, -1, axis=1)), 1.0)
            continue
        members = np.zeros((len(grid), blocks))
        np.add.at(members, (np.arange(len(grid))[:, None], at), 1.0)
        out += (members.T @ members - np.diag(members.sum(axis=0))) / (size - 1)
    return out


def _axis_pairs(groups: Pairs) -> NDArray[np.int64]:
    grid = groups_grid(groups.mesh, groups.axes)  # type: ignore[union-attr]
    listed = np.array(groups.pairs, np.int64).reshape(-1, 2)
    return np.stack([grid[:, listed[:, 0]], grid[:, listed[:, 1]]], axis=-1)


def _grids(groups: ReplicaGroups | None, devices: int) -> list[NDArray[np.int64]]:
    """Groups of one size as rows of one table."""
    if isinstance(groups, AxisGroups):
        return [groups_grid(groups.mesh, groups.axes)]
    listed = groups.expand() if groups is not None else ()
    listed = listed or (tuple(range(devices)),)
    by_size: dict[int, list[tuple[int, ...]]] = {}
    for group in listed:
        by_size.setdefault(len(group), []).append(group)
    return [np.array(rows, np.int64) for rows in by_size.values()]
