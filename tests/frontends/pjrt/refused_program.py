"""What the plug-in refuses, as a user of JAX sees it."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4,), ("x",))
columns = Format(Layout((1, 0)), NamedSharding(mesh, P("x")))


def refused(function, *told):
    try:
        function()
    except jax.errors.JaxRuntimeError as error:
        for text in told:
            assert text in str(error), f"{text!r} is not in {error}"
    else:
        raise AssertionError(f"{told} was not refused")


def unknown(x):
    return jax.ffi.ffi_call("nobody_knows", jax.ShapeDtypeStruct((), np.float32))(x)


line = inspect.getsourcelines(unknown)[1] + 1
refused(
    lambda: jax.jit(unknown)(1.0), "UNIMPLEMENTED", "nobody_knows", f"refused_program.py:{line}", "fix: call Python"
)
refused(lambda: jax.jit(lambda x: x * 2, out_shardings=columns)(jnp.ones((8, 8))), "layout {0,1}", "row by row")

split = jax.device_put(np.ones(8), NamedSharding(mesh, P("x")))
inspected = jax.jit(lambda x: (jax.debug.inspect_array_sharding(x, callback=lambda s: s.nothing), x))
refused(lambda: inspected(split), "inspect_array_sharding", "'nothing'", "refused_program.py")

gone = jnp.ones((4, 4))
jax.jit(lambda x: x + 1, donate_argnums=0)(gone)
try:
    print(gone + 1)
except RuntimeError as error:
    assert "deleted" in str(error)

# All goes on as before.
assert jax.jit(lambda x: x + 1)(1.0) == 2
