"""Random numbers: every device draws the whole array, so that the values are the same for every sharding."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.partitioner.rules.rule import Local, Row, nothing

__all__ = ["RULES"]


_WHOLE = Local("drawn whole on every device, then cut", usable=nothing)

RULES: Mapping[str, Row] = dict.fromkeys(("rng", "rng-bit-generator", "rng-get-and-update-state"), _WHOLE)
