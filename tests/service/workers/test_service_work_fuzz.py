"""Damaged programs, wild machines and meshes: an order ends in files or in an error of ours, never in anything else."""

from __future__ import annotations

import hashlib
import random
import re
from pathlib import Path
from typing import Any

import pytest

from shardc.costs.machines import machine as machines
from shardc.hlo.errors import ShardcError
from shardc.service.orders import ExplainOrder, InspectOrder, Order, PartitionOrder, ReportOrder, SimulateOrder
from shardc.service.workers.carry_out import carry_out

_TEXT = """HloModule layer, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[64,32]{1,0} parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}, metadata={op_name="x"}
  w = f32[32,128]{1,0} parameter(1), sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  h = f32[64,128]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,128]{1,0} tanh(h)
  zero = f32[] constant(0)
  loss = f32[] reduce(t, zero), dimensions={0,1}, to_apply=sum
  ROOT out = (f32[], f32[64,128]{1,0}) tuple(loss, t)
}
"""
_WORDS = re.findall(r"[A-Za-z0-9_.\-]+|[^A-Za-z0-9_\s]|\s+", _TEXT)
_SIZES = (0, 1, 2, 3, 7, -1, 100, 2**31, 2**63, 10**20)
_VALUES = (
    "0",
    "-1",
    "1e400",
    "nan",
    "inf",
    "10000000000000000000000",
    "''",
    "'x'",
    "[]",
    "[[0]]",
    "{}",
    "true",
    "1e300",
)
_MAPPINGS = ("", "search", "data=nvlink", "model,data", "=", "a=b=c", ",", "data=nvlink,data=nvlink")


def _damaged(chance: random.Random) -> bytes:
    """The program with one to three words changed, gone, doubled or moved."""
    words = list(_WORDS)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(words))
        way = chance.randrange(4)
        if way == 0:
            words[at] = chance.choice(_WORDS)
        elif way == 1:
            del words[at]
        elif way == 2:
            words.insert(at, chance.choice(_WORDS))
        else:
            words[at] = str(chance.choice(_SIZES))
    return "".join(words).encode()


def _machine(chance: random.Random) -> str:
    folder = Path(machines.__file__).parent
    lines = chance.choice(sorted(folder.glob("*.toml"))).read_text(encoding="utf-8").splitlines()
    for _ in range(chance.randint(0, 2)):
        at = chance.randrange(len(lines))
        name, equals, _ = lines[at].partition("=")
        lines[at] = f"{name}= {chance.choice(_VALUES)}" if equals else ""
    return "\n".join(lines)


def _order(chance: random.Random, program: str) -> Order:
    common: dict[str, Any] = {"program": program, "mesh": chance.choice([{}, {"data": 2, "model": 2}, {"x": 3}])}
    if chance.random() < 0.4:
        counts = chance.choice(["", "", "", "m:4", "m:0", "m:2x2", "m:9999999x9999999"])
        common |= {"machine": counts, "machine_text": _machine(chance)}
        return SimulateOrder(**common, mapping=chance.choice(_MAPPINGS), page=False, ignore_memory=True)
    kind = chance.choice([InspectOrder, PartitionOrder, ReportOrder])
    if chance.random() < 0.2:
        return ExplainOrder(**common, machine="h100-dgx", remedies=0)
    return kind(**common)


def _ends_well(chance: random.Random, data: bytes) -> bool:
    program = hashlib.sha256(data).hexdigest()
    try:
        files, facts = carry_out(_order(chance, program), {program: data}, lambda news: None)
    except ShardcError as e:
        assert e.what
        return False
    assert files
    assert facts["seconds"]
    return True


def _runs(seed: int, count: int) -> None:
    chance = random.Random(seed)
    made = [_ends_well(chance, _damaged(chance) if n % 2 else _TEXT.encode()) for n in range(count)]
    assert 0 < sum(made) < count  # both ends are looked at


def test_every_order_ends_in_files_or_in_an_error_of_ours() -> None:
    _runs(1, 40)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 10))
def test_every_order_ends_in_files_or_in_an_error_of_ours_often(seed: int) -> None:
    _runs(seed, 600)
