"""What jaxlib says of the sizes of the structures that it passes, as JSON by function; run by `test_pjrt_sizes`."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

from shardc.frontends.pjrt.abi.functions import FUNCTIONS
from shardc.frontends.pjrt.functions import plugin_api

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
#: Words of the table before its functions.
_HEAD = 5


def record(sizes: dict[str, int]) -> list[Any]:
    """From now on the process's table writes down the sizes; what must be kept for it."""
    table, kept = plugin_api().table, []
    for number, name in enumerate(FUNCTIONS):
        real = _FUNCTION(table[_HEAD + number])

        def noted(args: int, name: str = name, real: Any = real) -> int:
            sizes[name] = ctypes.c_int64.from_address(args).value
            return real(args) or 0

        kept.append(_FUNCTION(noted))
        table[_HEAD + number] = ctypes.cast(kept[-1], ctypes.c_void_p).value
    return kept


def use_jax() -> None:
    """A little of everything."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2,), ("x",))
    x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, PartitionSpec("x")))
    f = jax.jit(lambda v: (v.sum(), v + 1), donate_argnums=0)
    compiled = f.lower(x).compile()
    compiled.as_text(), compiled.cost_analysis(), compiled.memory_analysis()
    y = f(x)[1].block_until_ready()
    assert np.asarray(y).sum() == 36
    jnp.from_dlpack(np.arange(64.0)), np.from_dlpack(jnp.arange(3.0))
    jax.device_put(jnp.arange(3), jax.devices()[1]).delete()
    repr((y, jax.devices(), jax.devices()[0].memory_stats(), y.is_ready(), y.on_device_size_in_bytes()))
    y.addressable_shards[0].data.unsafe_buffer_pointer()
    jax.jit(lambda: 1)()


if __name__ == "__main__":
    found: dict[str, int] = {}
    kept = record(found)
    use_jax()
    print(json.dumps(found), flush=True)
    os._exit(0)  # what is destroyed at the end would come through Python, which `record` puts in between
