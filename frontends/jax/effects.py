"""What JAX itself refuses to lower for several devices, said in terms of the user's lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardc.hlo.errors import ShardcError, UnsupportedError

__all__ = ["equations", "lowering_refused"]

_SEVERAL = " is not supported in a program for several devices"
_PARTLY = " is not supported in a shard_map over some of the mesh's axes"
#: Part of JAX's message -> primitives to blame.
_REASONS = {
    "require devices to be present": ("inspect_sharding", "custom_partitioning"),
    "all mesh axes are partitioned manually": ("pure_callback", "io_callback"),
}
#: Primitive -> how users write it, what is the matter, and what to do instead.
_ADVICE = {
    "inspect_sharding": ("jax.debug.inspect_array_sharding" + _SEVERAL, "remove it: `shardc explain` shows shardings"),
    "custom_partitioning": ("custom_partitioning" + _SEVERAL, "call the plain function: shardc partitions it itself"),
    "pure_callback": ("jax.pure_callback" + _PARTLY, "call it outside, or let axis_names name all axes of the mesh"),
    "io_callback": ("io_callback" + _PARTLY, "call it outside, or let axis_names name all axes of the mesh"),
}


def lowering_refused(traced: Any, error: Exception) -> ShardcError | None:
    """Our error for one that JAX raised while lowering ``traced``; None where it is about something else."""
    names = next((names for words, names in _REASONS.items() if words in str(error)), ())
    if not names:
        return None
    for equation in equations(traced.jaxpr):
        name = equation.primitive.name
        if name in names:
            what, fix = _ADVICE[name]
            return UnsupportedError(what, where=_place(equation), fix=fix)
    return UnsupportedError(str(error))


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, and of those inside it, each once."""
    waiting, seen = [jaxpr], set()
    while waiting:
        closed = waiting.pop()
        inner = getattr(closed, "jaxpr", closed)
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        for equation in getattr(inner, "eqns", ()):
            yield equation
            for value in equation.params.values():
                parts = value if isinstance(value, tuple | list) else (value,)
                waiting += [p for p in parts if hasattr(p, "eqns") or hasattr(p, "jaxpr")]


def _place(equation: Any) -> str | None:
    """``file:line`` of the user's call, where this JAX tells."""
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(equation.source_info.traceback)
    except (ImportError, AttributeError, TypeError):
        return None
    return None if frame is None else f"{frame.file_name}:{frame.start_line}"
