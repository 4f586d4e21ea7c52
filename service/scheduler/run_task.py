"""The payload of the task of an order, and the problem that a failed task becomes."""

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
from shardc.service.workers.pieces import PART_FILE, OrderPart

__all__ = ["failure_of", "kind_of", "payload_of", "programs_of"]

log = logging.getLogger("shardc")


def kind_of(order: Order) -> str:
    """The kind of ``order``, as `ORDERS` names it."""
    return next(kind for kind, cls in ORDERS.items() if type(order) is cls)


def programs_of(order: Order) -> tuple[str, ...]:
    """The digests of the programs that ``order`` names, each once."""
    further = order.programs if isinstance(order, SweepOrder) else ()
    return tuple(dict.fromkeys((order.program, *further)))


def payload_of(order: str, programs: Iterable[str], store: Store, part: OrderPart) -> bytes:
    """The payload of the task "order": the order's text, the part of it that is to be done, and its programs.
    Raises `MissingPrograms`."""
    files = {ORDER_FILE: order.encode()}
    if part != OrderPart():
        files[PART_FILE] = plain.to_json(part).encode()
    for program in programs:
        try:
            files[program_file(program)] = store.program(program)
        except NotStored:
            raise MissingPrograms([program]) from None
    return pack(files, {})


def failure_of(error: Exception) -> Mapping[str, Any]:
    """The problem that a job fails with for ``error``. What is no `ShardcError` is a fault of the service: it is logged
    with its traceback, and the client gets its class and text alone."""
    if not isinstance(error, ShardcError):
        log.error("a job fails by a fault of the service", exc_info=error)
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        error = RunError(f"internal error of the service: {text}", fix="please report it; the server's log has details")
    return to_problem(error)
