"""The same for many things, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["for_all"]

A = TypeVar("A")
R = TypeVar("R")


def for_all(action: Callable[[A], R], items: Sequence[A], threads: int) -> list[R]:
    """Results in the order of ``items``; of several errors the first item's is raised."""
    if threads < 2 or len(items) < 2:
        return [action(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(action, items))
