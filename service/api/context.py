"""What the routes of the HTTP interface use: the scheduler, the store, and the settings of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from shardc.launcher.executors.limits import TaskLimits
from shardc.service.api.bodies import BodyBudget
from shardc.service.api.metrics import Metrics
from shardc.service.api.tokens import TokenFile, Tokens

if TYPE_CHECKING:
    from shardc.service.scheduler.scheduler import Scheduler
    from shardc.service.store.store import Store

__all__ = ["ApiContext", "ApiSettings", "Ending", "InjectedContext"]


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """How the interface behaves. Sizes are bytes, times seconds.

    ``tokens`` None: everybody on this computer may ask, and nobody else (the Host and Origin of requests are looked
    at). ``uploads`` are how many of the largest programs may be on their way at a time, ``stall_seconds`` how long the
    next bytes of a request may take. ``key`` signs entries; ``log`` hears of every request.
    """

    tokens: Tokens | TokenFile | None = None
    max_upload: int = 64_000_000
    max_order: int = 4_000_000
    uploads: int = 8
    stall_seconds: float = 30.0
    key: bytes = b""
    executor: str = "processes"
    workers: int = 1
    limits: TaskLimits = field(default_factory=TaskLimits)
    queue: int = 1000
    log: Callable[[str], None] | None = None


class Ending:
    """The server's end, in two steps: no new orders (``draining``), then no more waiting (``over``)."""

    def __init__(self) -> None:
        self.draining = False
        self.over = asyncio.Event()


@dataclass(frozen=True, slots=True)
class ApiContext:
    """Everything that the routes use; one for each application."""

    scheduler: Scheduler
    store: Store
    settings: ApiSettings
    metrics: Metrics
    ending: Ending
    body_budget: BodyBudget


async def _context(request: Request) -> ApiContext:  # what is not async costs a thread's turn
    context: ApiContext = request.app.state.context
    return context


#: How a route gets it.
InjectedContext = Annotated[ApiContext, Depends(_context)]
