"""Clip gradients by the norm of all of them together, as torch.nn.utils.clip_grad_norm_ does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["clip_gradients"]

#: What PyTorch adds to the norm, so that no gradient is divided by zero.
_LEAST = 1e-6


def clip_gradients(gradients: Mapping[str, Any], max_norm: float) -> dict[str, Any]:
    """The gradients times ``min(1, max_norm / norm)``, where ``norm`` is the Euclidean norm of all their elements.

    Squares of 16-bit elements are added up in float32. PyTorch rounds their norm to 16 bits.
    """
    import jax.numpy as jnp

    wide = {n: g.astype(jnp.promote_types(g.dtype, jnp.float32)) for n, g in gradients.items()}
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(jnp.abs(g))) for g in wide.values()))
    share = jnp.minimum(1.0, max_norm / (norm + _LEAST))
    return {n: (g * share).astype(gradients[n].dtype) for n, g in wide.items()}
