"""One order carried out: programs from the store to a worker, files from the worker into the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from shardc.hlo.codec import plain
from shardc.hlo.errors import RunError, ShardcError
from shardc.launcher.executors.problems import to_problem
from shardc.service.orders import ORDERS, Order, SweepOrder
from shardc.service.scheduler.refusals import MissingPrograms
from shardc.service.store.store import NotStored, Store
from shardc.service.workers.package import ORDER_FILE, pack, program_file
from shardc.service.workers.pieces import PART_FILE, Part

__all__ = ["failure_of", "kind_of", "payload_of", "programs_of"]

log = logging.getLogger("shardc")


def kind_of(order: Order) -> str:
    """As `ORDERS` calls it."""
    return next(kind for kind, cls in ORDERS.items() if type(order) is cls)


def programs_of(order: Order) -> tuple[str, ...]:
    """The programs that ``order`` names, each once."""
    further = order.programs if isinstance(order, SweepOrder) else ()
    return tuple(dict.fromkeys((order.program, *further)))


def payload_of(order: str, programs: Iterable[str], store: Store, part: Part) -> bytes:
    """What a worker gets for the task "order": the text of the order, which part of it is to be done, and programs.
    Raises `MissingPrograms`."""
    files = {ORDER_FILE: order.encode()}
    if part != Part():
        files[PART_FILE] = plain.to_json(part).encode()
    for program in programs:
        try:
            files[program_file(program)] = store.program(program)
        except NotStored:
            raise MissingPrograms([program]) from None
    return pack(files, {})


def failure_of(error: Exception) -> Mapping[str, Any]:
    """The problem that a job ends in for ``error``. What is not of our family is a fault of the service: it is logged
    with its traceback, and the client hears of it in general."""
    if not isinstance(error, ShardcError):
        log.error("a job fails by a fault of the service", exc_info=error)
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        error = RunError(f"a fault of the service: {text}", fix="please report it; the server's log says more")
    return to_problem(error)
