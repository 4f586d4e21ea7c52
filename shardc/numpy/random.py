"""``shardc.numpy.random``: generators of sharded arrays, whose numbers do not depend on the mesh.

Inside of a traced function they make traced values: a generator that is an argument goes on from call to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardc.hlo.numpy.random_stream import RandomStream, draw
from shardc.hlo.numpy.trace import constrain
from shardc.launcher.arrays.array import Array
from shardc.launcher.jobs.job import job_transport
from shardc.launcher.jobs.job_config import job_config
from shardc.launcher.operations.encoding import encode_static
from shardc.launcher.operations.operation import LeafKind, find_operation
from shardc.numpy.placing import new_sharding

__all__ = ["Generator", "default_rng"]


class Generator(RandomStream):
    """A stream of random numbers, as `default_rng` makes it; ``sharding=`` and ``mesh=`` of a draw place its array.

    Draws in a traced function are traced values. In a job all processes draw the same arrays in the same order.

    >>> rng = np.random.default_rng(0)
    >>> 0 < float(rng.random((64,), mesh=mesh).mean()) < 1
    True
    """

    def _place_draw(self, name: str, state: Any, dims: tuple[int, ...], dtype: np.dtype[Any], **options: Any) -> Any:
        arguments = ("list", (encode_static(name), ("leaf", 0), encode_static(dims), encode_static(dtype)))
        encoded = ("tuple", tuple, (arguments, ("dict", (), ())))
        kinds = (LeafKind((2,), np.dtype(np.uint64)),)
        lies = new_sharding(dims, **options)
        return find_operation(draw, encoded, kinds, job_transport(job_config()), Array, lies)([state])[0]

    def _constrained(self, made: Any, **options: Any) -> Any:
        sharding = options.get("sharding")
        return made if sharding is None else constrain(made, sharding)


def default_rng(seed: Any = None) -> Any:
    """`numpy.random.default_rng` of sharded arrays: a generator whose numbers do not depend on the mesh.

    ``seed`` is an integer, a sequence of them, a ``numpy.random.SeedSequence``, or a generator, which is returned
    itself. Without it, rank 0 draws a seed. The numbers differ from NumPy's. They are the same on every mesh, on
    virtual devices and on ranks.

    >>> np.random.default_rng(0).normal(size=(64, 64), mesh=mesh)
    shardc.Array(f64[64,64], [{x}, {y}])
    """
    if isinstance(seed, Generator):
        return seed
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    key = int(sequence.generate_state(1, np.uint64)[0])
    if seed is None:
        key = job_transport(job_config()).exchange_objects(key, doing="seeding a generator")[0]
    return Generator(np.array([key, 0], np.uint64))
