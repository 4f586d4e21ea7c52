"""Bytes of the host that somebody else allocated, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["HostBytes"]


class HostBytes:
    """``nbytes`` at ``address``. A subclass frees them when it is gone, and with it the arrays over them."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def array(self) -> NDArray[np.uint8]:
        """[nbytes] uint8 over the memory, which it keeps."""
        return np.asarray(self)
