"""Rows of the collectives: they belong to per-device programs, which are not propagated."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.opset import OPS
from shardc.sharding.rules.signature import Row, Unsupported

__all__ = ["RULES"]

_WHY = "a collective speaks about devices: it has a meaning in a partitioned program or a manual computation only"

RULES: Mapping[str, Row] = {o: Unsupported(_WHY) for o, op in OPS.items() if op.family == "collective"}
