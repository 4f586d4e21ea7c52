"""Operators that code outside of PyTorch defines by ``torch.library.custom_op``: their Python bodies are followed.

PyTorch keeps such an operator as one node of the graph. A body of PyTorch's own operators is a decomposition like any
other, once its changes in place are gone. Gradients stay those that the operator has by ``register_autograd``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["bodies"]


def bodies(torch: Any) -> dict[Any, Callable[..., Any]]:
    """The body of each custom operator that changes no argument, as a decomposition.

    PyTorch keeps an operator whose decomposition returns NotImplemented; it is then refused by its name. That happens
    where a body needs values, such as those of a NumPy array.
    """
    from torch._library.custom_ops import OPDEFS

    found = {}
    for definition in list(OPDEFS.values()):
        operator = definition._opoverload
        if not operator._schema.is_mutable:
            found[operator] = _followed(definition._init_fn)
    return found


def _followed(body: Callable[..., Any]) -> Callable[..., Any]:
    from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        try:
            return dispatch_functionalize(body, FunctionalTensorMode())(*args, **kwargs)
        except Exception:  # whatever the user's code does with tensors that have no values
            return NotImplemented

    return decomposition
