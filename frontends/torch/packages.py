"""The optional package that PyTorch programs need: loaded here, and asked for by name where it is missing."""

from __future__ import annotations

from typing import Any

from shardc.hlo.errors import EnvironmentProblem

__all__ = ["require_torch"]

_FIX = "install the extra: pip install 'shardc[torch]'"


def require_torch() -> Any:
    """The module ``torch``; EnvironmentProblem naming the extra where it is missing."""
    try:
        import torch
        import torch.export
    except ImportError as e:
        raise EnvironmentProblem(f"this needs PyTorch: {e}", fix=_FIX) from None
    return torch
