"""The row of attention beside its definition in 64-bit NumPy: masks, causal, scales, and the logarithms of the sums."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from shardc.frontends.torch.rows.products import ROWS
from shardc.hlo.errors import UnsupportedError

ROW = ROWS["aten._scaled_dot_product_flash_attention_for_cpu"]
RNG = np.random.default_rng(5)
Q, K, V = (RNG.normal(size=(2, 3, n, d)).astype(np.float32) for n, d in ((5, 4), (7, 4), (7, 6)))
MASK = np.where(RNG.random((5, 7)) < 0.3, -np.inf, 0.0).astype(np.float32)
MASK[:, 0] = 0.0  # No row is masked as a whole.


def truth(is_causal: bool, mask: Any, scale: float | None) -> tuple[Any, Any]:
    """Row by row, as the definition says it."""
    scale = 4**-0.5 if scale is None else scale
    mixed, logs = np.zeros((2, 3, 5, 6)), np.zeros((2, 3, 5))
    for b, h, i in np.ndindex(2, 3, 5):
        scores = scale * (K[b, h].astype(float) @ Q[b, h, i])
        if mask is not None:
            scores = scores + mask[i]
        seen = [j for j in range(7) if (j <= i or not is_causal) and np.isfinite(scores[j])]
        weights = np.exp(scores[seen])
        mixed[b, h, i] = weights @ V[b, h][seen] / weights.sum()
        logs[b, h, i] = np.log(weights.sum())
    return mixed, logs


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize(("is_causal", "mask"), [(False, None), (True, None), (False, MASK)])
def test_attention_is_its_definition(is_causal: bool, mask: Any, scale: float | None) -> None:
    given = [jnp.asarray(x) for x in (Q, K, V)]
    found = ROW(*given, 0.0, is_causal, attn_mask=None if mask is None else jnp.asarray(mask), scale=scale)
    for mine, want in zip(found, truth(is_causal, mask, scale), strict=True):
        np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-6)


def test_dropout_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"dropout_p=0.1"):
        ROW(*(jnp.asarray(x) for x in (Q, K, V)), 0.1)
