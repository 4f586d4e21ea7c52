"""Modules on the device ``meta``, traced as if they were on the CPU: on ``meta`` some operators have no gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["traceable"]


@contextlib.contextmanager
def traceable(torch: Any, module: Any, args: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """``args`` as they can be traced with ``module``, whose tensors stand for others until the context ends.

    Where nothing is on ``meta`` all stays as it is. Otherwise every tensor becomes one of PyTorch's fake ones on the
    CPU, which has no memory either; tensors that were the same stay the same.
    """
    from torch._subclasses import FakeTensorMode

    pytree = torch.utils._pytree
    tensors = [*module.parameters(), *module.buffers(), *pytree.tree_leaves(args)]
    if not any(isinstance(t, torch.Tensor) and t.is_meta for t in tensors):
        yield tuple(args)
        return
    mode = FakeTensorMode()
    made: dict[int, Any] = {}

    def fake(tensor: Any) -> Any:
        if id(tensor) not in made:
            with mode:
                like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            parameter = isinstance(tensor, torch.nn.Parameter)
            made[id(tensor)] = torch.nn.Parameter(like, tensor.requires_grad) if parameter else like
        return made[id(tensor)]

    held = [(d, name, t) for m in module.modules() for d in (m._parameters, m._buffers) for name, t in d.items()]
    try:
        for table, name, tensor in held:
            table[name] = None if tensor is None else fake(tensor)
        yield pytree.tree_map_only(torch.Tensor, fake, tuple(args))
    finally:
        for table, name, tensor in held:
            table[name] = tensor
