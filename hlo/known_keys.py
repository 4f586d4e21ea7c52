"""The keys that a table of a file may have. The error for another key names it, and the key that was probably meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from shardc.hlo.errors import InputError

__all__ = ["require_known"]


def require_known(
    table: Mapping[str, Any],
    known: Iterable[str],
    what: str,
    where: str | None,
    also: Callable[[str], bool] = lambda key: False,
    kind: str = "key",
) -> None:
    """Raise `InputError` for the first key of ``table``, called ``what``, that is neither ``known`` nor ``also``.
    ``kind`` is what its keys are called.

    >>> require_known({"latencies": 3e-6}, ["size", "latency"], "a level", "cluster.toml, level 0")
    Traceback (most recent call last):
      ...
    shardc.hlo.errors.InputError: a level has no key 'latencies'
      where: cluster.toml, level 0
      fix: did you mean latency?
    """
    names = list(known)
    for key in table:
        if key in names or also(key):
            continue
        near = get_close_matches(key, names, n=1)
        fix = f"did you mean {near[0]}?" if near else f"use {', '.join(names)}, or leave it out"
        raise InputError(f"{what} has no {kind} {key!r}", where=where, fix=fix)
