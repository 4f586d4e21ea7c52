"""What JAX itself refuses to lower for several devices, said in terms of the user's lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardc.hlo.errors import ShardcError, UnsupportedError

__all__ = ["lowering_refused"]

#: Part of JAX's message -> primitives to blame.
_REASONS = {
    "require devices to be present": ("pure_callback", "io_callback", "inspect_sharding", "custom_partitioning"),
    "effects are not supported for more than 1 device": ("debug_callback", "debug_print", "io_callback"),
}
#: Primitive -> how users write it, and what to do instead.
_ADVICE = {
    "pure_callback": ("jax.pure_callback", "write it with jax.numpy, or call Python between two jitted functions"),
    "io_callback": ("jax.experimental.io_callback", "return the values and do this outside the jitted function"),
    "inspect_sharding": ("jax.debug.inspect_array_sharding", "remove it: `shardc explain` tells shardings"),
    "custom_partitioning": ("custom_partitioning", "call the plain function: shardc partitions it itself"),
    "debug_callback": ("an ordered debug callback", "leave ordered=True out"),
    "debug_print": ("an ordered jax.debug.print", "leave ordered=True out"),
}


def lowering_refused(traced: Any, error: Exception) -> ShardcError | None:
    """Our error for one that JAX raised while lowering ``traced``; None where it is about something else."""
    names = next((names for words, names in _REASONS.items() if words in str(error)), ())
    if not names:
        return None
    for equation in _equations(traced.jaxpr):
        name = equation.primitive.name
        if name in names:
            what, fix = _ADVICE[name]
            return UnsupportedError(f"{what} in a program for several devices", where=_place(equation), fix=fix)
    return UnsupportedError(str(error))


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, and of those inside it."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in getattr(inner, "eqns", ()):
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                    yield from _equations(part)


def _place(equation: Any) -> str | None:
    """``file:line`` of the user's call, where this JAX tells."""
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(equation.source_info.traceback)
    except (ImportError, AttributeError, TypeError):
        return None
    return None if frame is None else f"{frame.file_name}:{frame.start_line}"
