"""Linear algebra, Fourier transforms, batch normalisation: independent dimensions on shards, the others whole."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.partitioner.rules.rule import Local, Row

__all__ = ["RULES"]

_BATCH = "on shards of the batch, matrices whole"

RULES: Mapping[str, Row] = {
    "cholesky": Local(_BATCH),
    "triangular-solve": Local("on shards of the batch and of independent right-hand sides"),
    "fft": Local("on shards of the batch, transformed dimensions whole"),
    "batch-norm-training": Local("on shards of the features"),
    "batch-norm-inference": Local("on shards"),
    "batch-norm-grad": Local("on shards of the features"),
}
