"""`shardc.gather`: whole values from shards, on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError
from shardc.launcher.arrays.same_values import who_has_what
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.arrays.trees import map_with_prefix

__all__ = ["gather", "in_one_piece"]


def gather(value: Any) -> Any:
    """Return the whole value as NumPy on every rank. *Every* rank must call it, with the same arrays in the same order.

    ``value`` is an `Array` or a ``jax.Array``, or nested dicts, lists, tuples and dataclasses (with JAX, any pytree)
    that contain arrays. Raises `InputError` where the ranks have arrays of different shapes.

    >>> x = shardc.array(np.arange(4), (mesh, P("data")))
    >>> shardc.gather({"x": x})
    {'x': array([0, 1, 2, 3])}
    """
    return map_with_prefix(lambda leaf, _: _whole(leaf), value)


def in_one_piece(array: ShardedArray) -> NDArray[Any] | None:
    """The whole value in the memory of its shards, if this process holds all of them and they are contiguous; nothing
    is sent.

    The array then shares its memory: steps do not write over it. In a job the answer is the same on all ranks.
    """
    layout = array._layout
    if not layout.rows or array._transport.process_count > 1:
        return None
    memory = array._live_shards().one_after_another(layout.rows)
    if memory is None:
        return None
    array._shared = True
    return memory.view(layout.dtype.numpy).reshape(layout.dims)


def _whole(leaf: Any) -> Any:
    if isinstance(leaf, ShardedArray):
        return _gather_array(leaf)
    if getattr(leaf, "is_masked", False):  # x[mask]
        return leaf.gathered(_gather_array)
    of_jax = hasattr(leaf, "addressable_shards") and "key<" not in str(leaf.dtype)
    return np.asarray(leaf) if of_jax else leaf


def _gather_array(array: ShardedArray) -> NDArray[Any]:
    transport, layout = array._transport, array._layout
    blocks = array._live()
    if transport.process_count == 1 or (layout.whole and not layout.maximal):
        return np.asarray(array)
    text = f"{array!r} over {layout.num_devices} devices"
    if told := who_has_what(transport.ranks, transport.exchange_objects(text, doing="a gather of values")):
        raise InputError(
            f"the ranks gather different arrays: {told}",
            fix="gather the same arrays in the same order on all ranks; where they have parts of different sizes, give "
            "array_from_process_local_data the global shape",
        )
    table = transport.ownership(layout.num_devices).table()
    # Each distinct shard travels once, from the first device that holds it.
    holders = sorted(layout.holders.items(), key=lambda item: item[1])
    mine = [blocks[d][: layout.local_bytes] for _, d in holders if d in blocks]
    sizes = np.bincount([int(table[d]) for _, d in holders], minlength=transport.process_count) * layout.local_bytes
    everything = transport.concatenate(np.concatenate(mine) if mine else np.empty(0, np.uint8), sizes.tolist())
    out = np.empty(layout.dims, layout.dtype.numpy)
    for number, (position, _) in enumerate(holders):
        block = everything[number * layout.local_bytes : (number + 1) * layout.local_bytes]
        out[layout.region(position)] = layout.without_padding(block, position)
    return out
