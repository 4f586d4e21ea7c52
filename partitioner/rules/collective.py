"""Collectives have no meaning in a global program: the partitioner is what inserts them."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.opset import OPS
from shardc.partitioner.rules.rule import Refused, Row

__all__ = ["RULES"]

_WHY = "a collective speaks about devices; it belongs to a partitioned program or a manual computation"

RULES: Mapping[str, Row] = {o: Refused(_WHY) for o, op in OPS.items() if op.family == "collective"}
