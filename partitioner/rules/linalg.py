"""Linear algebra, Fourier transforms, batch normalisation: independent dimensions on shards, the others whole.

The axes of a dimension that must be whole move to an independent one where there is one (`choose`); transforms over
several dimensions are taken one dimension at a time (`SplitTransforms`), a single one in four steps (`transforms`).
"""

from __future__ import annotations

from collections.abc import Mapping

from shardc.partitioner.rules.matrices.cholesky import BLOCKED_CHOLESKY
from shardc.partitioner.rules.matrices.triangular import BY_COLUMNS, BY_ROWS
from shardc.partitioner.rules.matrices.upper_cholesky import CHOLESKY_OF_COLUMNS
from shardc.partitioner.rules.transforms import FOUR_STEPS, transform_seconds
from shardc.partitioner.strategy.rule import Local, PartitionRow

__all__ = ["RULES"]

_BATCH = "on shards of the batch, matrices whole"

RULES: Mapping[str, PartitionRow] = {
    "cholesky": Local(_BATCH, alternatives=(BLOCKED_CHOLESKY, CHOLESKY_OF_COLUMNS)),
    "triangular-solve": Local(
        "on shards of the batch and of independent right-hand sides", alternatives=(BY_ROWS, BY_COLUMNS)
    ),
    "fft": Local(
        "one dimension at a time, its axes moved to another one, or in four steps",
        alternatives=(FOUR_STEPS,),
        computes=transform_seconds,
    ),
    "batch-norm-training": Local("on shards of the features"),
    "batch-norm-inference": Local("on shards"),
    "batch-norm-grad": Local("on shards of the features"),
}
