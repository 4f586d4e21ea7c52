"""`plain_operators`: a context in which PyTorch rewrites layers with operators that are partitioned like all others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["plain_operators"]


@contextlib.contextmanager
def plain_operators(torch: Any) -> Iterator[None]:
    """Attention becomes products and a softmax, and recurrent layers become those of their steps, with dropout."""
    attention = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with attention, _without_library(torch), _with_dropout(torch):
        yield


def _without_library(torch: Any) -> Any:
    """An LSTM does not become one operator of the library oneDNN; its other settings stay."""
    others = {"deterministic": None, "allow_tf32": None, "fp32_precision": None}
    return torch.backends.mkldnn.flags(enabled=False, **others)


@contextlib.contextmanager
def _with_dropout(torch: Any) -> Iterator[None]:
    """Recurrent layers drop elements between layers.

    PyTorch 2.14 compares numbers of layers the wrong way round where it rewrites them, and never drops any.
    """
    from torch._decomp import decompositions

    own = decompositions._rnn_helper
    decompositions._rnn_helper = _layer_by_layer(torch, own)
    try:
        yield
    finally:
        decompositions._rnn_helper = own


def _layer_by_layer(torch: Any, own: Callable[..., Any]) -> Callable[..., Any]:
    def stacked(
        x: Any, hidden: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool, layer: Callable[..., Any],
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        x = x.transpose(0, 1) if batch_first else x
        last: list[Any] = []
        count = 2 if bidirectional else 1
        for k in range(0, count * num_layers, count):
            x = torch.dropout(x, dropout, True) if k and train and dropout else x
            some = (hidden[k : k + count], params[k : k + count], has_biases, 1, 0.0, train, bidirectional, False)
            x, found = own(x, *some, layer)
            last += found
        return x.transpose(0, 1) if batch_first else x, last

    return stacked
