"""One rank of a job of two, which compiles through JAX's cache, and serializes a program.

``cached_program.py`` or, under jax.distributed, ``cached_program.py PORT COUNT RANK``. Writes a line of JSON.
"""

import hashlib
import json
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

if len(sys.argv) > 1:
    port, count, rank = sys.argv[1:]
    jax.distributed.initialize(f"localhost:{port}", int(count), int(rank))
events: Counter[str] = Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rpartition("/")[2]]))

mesh = Mesh(np.array(jax.devices()), "x")
split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
values = np.random.default_rng(0).standard_normal((8, 8), np.float32)
x = jax.make_array_from_callback(values.shape, split, lambda index: values[index])
results = [jax.jit(lambda v: jnp.cumsum(v, 0) * v.sum(), out_shardings=whole)(x)]
results.append(jax.jit(lambda v: jnp.sin(v).sum())(values))
compiled = jax.jit(lambda v: v @ v, out_shardings=whole).lower(x).compile()
again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
results += [compiled(x), again(x)]
digests = [hashlib.sha256(np.asarray(r).tobytes()).hexdigest()[:16] for r in results]
told = {"rank": jax.process_index(), "digests": digests}
told.update((name, events[name]) for name in ("compile_requests_use_cache", "cache_hits", "cache_misses"))
sys.stdout.write(json.dumps(told) + "\n")
sys.stdout.flush()
