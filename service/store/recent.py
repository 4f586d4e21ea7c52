"""A cache in memory with a size limit: the least recently used values go first (LRU)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Recent"]

_T = TypeVar("_T")


class Recent(Generic[_T]):
    """Values by name; when their sizes exceed ``limit``, those not used for longest go. Safe in several threads."""

    def __init__(self, limit: int, size: Callable[[_T], int]) -> None:
        self._limit = limit
        self._size = size
        self._total = 0
        self._values: OrderedDict[str, _T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> _T | None:
        with self._lock:
            if name not in self._values:
                return None
            self._values.move_to_end(name)
            return self._values[name]

    def put(self, name: str, value: _T) -> None:
        """Remember ``value``, unless it is larger than a quarter of the limit."""
        with self._lock:
            self._drop(name)
            if 4 * self._size(value) > self._limit:
                return
            self._values[name] = value
            self._total += self._size(value)
            while self._total > self._limit:
                self._drop(next(iter(self._values)))

    def drop(self, name: str) -> None:
        with self._lock:
            self._drop(name)

    def _drop(self, name: str) -> None:
        if name in self._values:
            self._total -= self._size(self._values.pop(name))
