"""Progress messages: the logger ``shardc.progress`` names each stage at DEBUG."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LOGGER", "detail", "stage"]

LOGGER = "shardc.progress"
_log = logging.getLogger(LOGGER)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """``name`` is done in the block, during which nothing is printed; also a decorator.

    A record's ``depth`` is 1 where a stage begins, -1 where it ends and 0 in between.
    """
    _log.debug("%s", name, extra={"depth": 1})
    try:
        yield
    finally:
        _log.debug("%s", name, extra={"depth": -1})


def detail(text: str, *arguments: object) -> None:
    """How far the stage is. Example: ``detail("%d of %d kernels", 12, 80)``."""
    _log.debug(text, *arguments, extra={"depth": 0})
