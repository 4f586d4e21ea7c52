"""`jax.device_put` to a memory kind in traced functions, kept when JAX lowers them.

JAX's own rule for CPUs leaves memory kinds out, since its CPU devices have one memory. Programs of ours are lowered for
CPU and mean other devices, so they are lowered by the rule that JAX has for accelerators: a custom call
``annotate_device_placement``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardc.frontends.jax.effects import equations

__all__ = ["placement_rules"]

#: A primitive, and how it is lowered.
LoweringRules = tuple[tuple[Any, Callable[..., Any]], ...]


def placement_rules(jaxpr: Any) -> LoweringRules:
    """What to lower otherwise than JAX does for CPU: nothing, for a function that names no memory kind.

    Example: inside ``jax.jit``, of ``jax.device_put(x, jax.memory.Space.Host)`` the program then has a custom call with
    the frontend attribute ``_xla_buffer_placement="pinned_host"``.
    """
    puts = [e for e in equations(jaxpr) if e.primitive.name == "device_put"]
    if not any(_kind(target) for e in puts for target in e.params["devices"]):
        return ()
    return ((puts[0].primitive, _lower),)


def _kind(target: Any) -> str | None:
    """The memory kind that a ``device_put`` names, by itself, as a memory space, or in a sharding."""
    from jax._src import core

    space = getattr(core, "MemorySpace", None)
    if space is not None and isinstance(target, space):
        return str(core.mem_space_to_kind(target))
    kind = getattr(target, "memory_kind", None)
    return None if kind is None else str(kind)


def _lower(context: Any, *values: Any, devices: Any, **_: Any) -> list[Any]:
    from jax._src import config
    from jax._src.interpreters import mlir

    def put(x: Any, target: Any, before: Any, after: Any) -> Any:
        kind = _kind(target)
        if kind is None:
            return x
        if hasattr(target, "_to_sdy_sharding"):
            shardy = config.use_shardy_partitioner.value
            to_hlo = target._to_xla_hlo_sharding
            layout = target._to_sdy_sharding(before.ndim) if shardy else to_hlo(before.ndim).to_proto()
            x = mlir.wrap_with_sharding_op(context, x, after, layout)
        return mlir.wrap_with_memory_kind(context.module_context, x, kind, after)

    return list(map(put, values, devices, context.avals_in, context.avals_out))
