"""Random numbers: every device draws the whole array, so that the values are the same for every sharding."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir import Instruction
from shardc.partitioner.rules.rule import Local, Row
from shardc.sharding.factors import FactorRule

__all__ = ["RULES"]


def _nothing(op: Instruction, rule: FactorRule) -> frozenset[int]:
    return frozenset()


_WHOLE = Local("drawn whole on every device, then cut", usable=_nothing)

RULES: Mapping[str, Row] = dict.fromkeys(("rng", "rng-bit-generator", "rng-get-and-update-state"), _WHOLE)
