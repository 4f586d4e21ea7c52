"""One rank of a job that trains with an optimiser's state in host memory, and says what the state's shards are."""

from __future__ import annotations

import numpy as np

import shardc
from tests.frontends.jax.test_memory_kinds import SIZE, optimiser


def main() -> None:
    rng = np.random.default_rng(1)
    first, slope = (rng.standard_normal(SIZE).astype(np.float32) for _ in range(2))
    compiled = optimiser().partition().compile()
    state, expected = first, first
    for _ in range(4):
        state, update = compiled(state, slope)
        expected = np.float32(0.9) * expected + slope
        found = np.asarray(shardc.gather(state)), np.asarray(shardc.gather(update))
        np.testing.assert_allclose(found[0], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[1], expected * np.float32(0.1), rtol=1e-6, atol=1e-6)
    assert compiled.executable.memory["host_bytes"] == SIZE
    if shardc.process_index() == 0:
        print(f"{len(state.addressable_shards)} shards of {state.addressable_shards[0].data.nbytes} bytes")


if __name__ == "__main__":
    main()
