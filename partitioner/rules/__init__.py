"""Partition rules by opcode: the family tables merged.

Start with `rule`, the kinds of rows; one file per family has the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.partitioner.rules import (
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    linalg,
    random,
    reduction,
    shape,
    window,
)
from shardc.partitioner.strategy.rule import PartitionRow

__all__ = ["RULES"]

RULES: Mapping[str, PartitionRow] = MappingProxyType(
    {
        **elementwise.RULES,
        **contraction.RULES,
        **reduction.RULES,
        **shape.RULES,
        **indexing.RULES,
        **window.RULES,
        **linalg.RULES,
        **random.RULES,
        **control.RULES,
        **collective.RULES,
    }
)
