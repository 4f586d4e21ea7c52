"""`Writes`: what tells that a tensor of a module may have another value than a program has of it."""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["Writes"]


class Writes:
    """Counts writes to tensors: PyTorch's own count for each, and the steps of all optimizers.

    PyTorch 2.14 does not count what fused optimizers write on a CPU. Neither does it count what batch normalisation
    writes into its buffers, so only parameters are `counted`.
    """

    def __init__(self, torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._parameter = torch.nn.Parameter
        self._steps = 0
        this = weakref.ref(self)

        def after_step(*_: Any) -> None:
            if (writes := this()) is not None:
                writes._steps += 1

        handle = register_optimizer_step_post_hook(after_step)
        weakref.finalize(self, handle.remove)

    def version(self, tensor: Any) -> tuple[int, int]:
        """Changes with each write that is counted."""
        return tensor._version, self._steps

    def counted(self, tensor: Any) -> bool:
        """Whether a write would change the version."""
        return isinstance(tensor, self._parameter)
