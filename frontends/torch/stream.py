"""The state of a program's random numbers, which counts its calls.

It is int64[2], a seed and the number of calls made; it is an argument of the program, and a result over the same
memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardc.frontends.torch.exported import TensorGraph
from shardc.frontends.torch.signature import ModuleTensor, Update
from shardc.hlo.errors import InputError

__all__ = ["STATE", "next_state", "stream_state", "with_stream"]

#: What the state is called among the program's arguments.
STATE = "random.state"


def stream_state(torch: Any, seed: Any) -> Any:
    """The state for ``seed``: a whole number, or the state itself; InputError for others."""
    if isinstance(seed, torch.Tensor) and seed.dtype == torch.int64 and tuple(seed.shape) == (2,):
        return seed
    if isinstance(seed, int) and not isinstance(seed, bool) and -(2**63) <= seed < 2**63:
        return torch.tensor([seed, 0])
    raise InputError(
        f"{seed!r} is not a seed",
        where="seed",
        fix="pass an integer, or a tensor int64[2] with the seed and the number of calls",
    )


def next_state(jax: Any, state: Any) -> Any:
    """The state of the next call."""
    return state + jax.numpy.asarray([0, 1], state.dtype)


def with_stream(graph: TensorGraph, state: Any) -> TensorGraph:
    """``graph`` with the state as the last of the module's tensors, and its new value as the last result."""
    signature = graph.signature
    if STATE in signature.names:
        raise InputError(f"the module has a tensor called {STATE}", where=STATE, fix="rename it")
    number = len(signature.states)

    def moved(flat: int) -> int:
        return flat + (flat >= number)

    updates = tuple(Update(u.result, moved(u.argument)) for u in signature.updates)
    made = replace(
        signature,
        states=(*signature.states, ModuleTensor(STATE, state)),
        updates=(*updates, Update(len(graph.results), number)),
        kept=tuple(range(len(signature.kept) + 1)),
    )
    placeholders = tuple(None if p is None else moved(p) for p in graph.placeholders)
    return replace(graph, signature=made, placeholders=placeholders)
