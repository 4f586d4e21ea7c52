"""Executables from the compile service that the environment names, in place of compiling here.

What the service cannot do is done here, with one warning that names the reason; a service that is away is not asked
again for a while. In a job rank 0 asks, and its `Ticket` lets every rank fetch the artifact by its key.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from shardc.hlo.config import Config
from shardc.hlo.errors import ShardcError
from shardc.launcher.jobs.mpi_environment import detect_launcher
from shardc.native.llvm.target import Target, host_target
from shardc.service.client.address import Address
from shardc.service.client.client import Client
from shardc.service.client.connection import ServiceAway
from shardc.service.client.executables import FILE, fetch_or_compile, read_executable, repeat_warnings
from shardc.service.client.requests import Requests
from shardc.service.client.terms import need_none_of
from shardc.service.orders import CompileOrder, order_key

if TYPE_CHECKING:
    from shardc.compiler.executable import Executable
    from shardc.partitioner.program import SourceProgram

__all__ = ["RemoteCompilation", "Ticket"]

log = logging.getLogger("shardc")

#: Seconds for which a service that was away is not asked again.
_AWAY = 60.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """Where a rank finds what another one ordered: the artifact's key, in the order that it is the answer to."""

    key: str
    order: CompileOrder


@dataclass(eq=False)
class RemoteCompilation:
    """Asks a service to compile what ``program`` gives, for ``target``; ``conservative`` and ``options`` as
    `Program.propagate` and `Propagated.partition` have them. ``ticket`` is that of the last answer."""

    config: Config
    program: Callable[[], SourceProgram]
    target: str
    conservative: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: bool = False
    ticket: Ticket | None = None
    _ordered: dict[Target, tuple[CompileOrder, Mapping[str, bytes]]] = field(default_factory=dict)

    @staticmethod
    def of(
        config: Config, program: Callable[[], SourceProgram], target: str, **options: Any
    ) -> RemoteCompilation | None:
        """None where a service is of no use: none is named, or the settings and the GPU of this computer say so.

        Raises `InputError` where the environment names one that is no URL.
        """
        if not config.server or need_none_of(config) or target == "cuda":
            return None
        Address.of(config)
        return RemoteCompilation(config, program, target, **options)

    def source(self, machine: Target | None) -> str:
        """What tells the answer for a CPU (None: this one) from all else; empty where nothing can be asked."""
        try:
            with self._client() as client:
                return f"order {order_key(self._order(client, machine)[0])}"
        except ShardcError as e:
            self._tell(e)
            return ""

    def executable(self, machine: Target | None) -> tuple[Executable, str] | None:
        """The executable for a CPU and its name in the cache, which is empty if shardc warned of something; None where
        the service gives none."""
        self.ticket = None
        try:
            if _service_state(self.config.server).is_away:
                return None
            with self._client() as client:
                order, programs = self._order(client, machine)
                made, result = fetch_or_compile(client, order, programs)
        except ShardcError as e:
            self._tell(e)
            return None
        self.ticket = Ticket(result.entry.key, order)
        repeat_warnings(result)
        log.info("%s comes from %s", made.name, self.config.server)
        return made, "" if result.facts.get("warnings") else result.entry.key

    def fetch(self, ticket: Ticket) -> Executable | None:
        """The executable that ``ticket`` is for, fetched by its key and verified; None, where that fails."""
        try:
            with Requests(Address.of(self.config), timeout=15.0, retry=False) as requests:
                kept = requests.fetch_stored(ticket.key, FILE)
                return None if kept is None else read_executable(kept[1], ticket.order)
        except ShardcError as e:
            log.info("%s cannot be fetched from %s: %s", ticket.key, self.config.server, e.what)
            return None

    def _client(self) -> Client:
        return Client(Address.of(self.config), config=self.config)

    def _order(self, client: Client, machine: Target | None) -> tuple[CompileOrder, Mapping[str, bytes]]:
        """The order, and its program by digest; made once."""
        machine = machine or host_target()
        if machine not in self._ordered:
            remote = client.program(self.program())
            partitioned = remote.propagate(conservative=self.conservative).partition(**self.options)
            order = partitioned.compile_order(self.target, machine, profile=self.profile, page=False)
            self._ordered[machine] = order, {remote.digest: remote.data}
        return self._ordered[machine]

    def _tell(self, error: ShardcError) -> None:
        launcher = detect_launcher()
        state = _service_state(self.config.server)
        if isinstance(error, ServiceAway):
            state.away_until = time.monotonic() + _AWAY
        if state.told or (launcher is not None and launcher.rank > 0):
            return
        state.told = True
        place = "" if error.where is None else f" ({error.where})"
        log.warning("the compile service is not used: %s%s; programs are compiled here", error.what, place)


@dataclass(slots=True)
class _ServiceState:
    """What this process knows of a service: until when it is taken to be away, and whether that was told."""

    away_until: float = 0.0
    told: bool = False

    @property
    def is_away(self) -> bool:
        return time.monotonic() < self.away_until


@cache
def _service_state(server: str) -> _ServiceState:
    """One per service and process."""
    return _ServiceState()
