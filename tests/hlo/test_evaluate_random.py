"""Random bits: exactly XLA's, with the state they leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evaluator_truth import agree, jax

lax = jax.lax
DIMS = ((), (7,), (3, 4), (3, 5), (3, 3), (5, 2, 7))
#: The second one carries the counter over its low 64 bits.
STATES = ([1, 0xFFFFFFF0, 5, 0xFFFFFFFF], [0xFFFFFFF1, 0x123, 0xFFFFFFFE, 0xFFFFFFFF])


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("algorithm", ["RNG_THREE_FRY", "RNG_PHILOX", "RNG_DEFAULT"])
def test_bits_and_state(algorithm: str, kind: Any, state: list[int]) -> None:
    choice = getattr(lax.RandomAlgorithm, algorithm)

    def everything(key: Any) -> Any:
        return [lax.rng_bit_generator(key, dims, dtype=kind, algorithm=choice) for dims in DIMS]

    agree(everything, np.array(state, np.uint32))


def test_jax_random() -> None:
    def everything(key: Any) -> Any:
        r = jax.random
        return r.uniform(key, (5, 7)), r.permutation(key, 20), r.bernoulli(key, 0.3, (9,)), r.randint(key, (9,), 0, 50)

    agree(everything, jax.random.PRNGKey(3))
