"""The crash report of a job: the process that starts it learns which rank ended first, and where everybody was then.

An MPI launcher kills all ranks as soon as one has died, before any of them could say which. So `shardc mpiexec` listens
on a socket that every rank of its machine holds open: the system closes a dead process's socket before the launcher
hears of its end. Messages are lines of JSON; the socket's name is secret and handed down in the environment.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.hlo.errors import RunError
from shardc.hlo.variables import read_variable

if TYPE_CHECKING:  # what starts a job does not wait for NumPy and LLVM
    from shardc.launcher.jobs.rank_status import CollectivePlan, Peer, RankStatus

__all__ = ["CrashReport", "CrashReporter"]

_VARIABLE = "SHARDC_CRASH_REPORT"
#: Bytes that are read at a time, and that a message may have.
_PART, _MOST = 1 << 16, 1 << 26


class CrashReporter:
    """A rank's end of the socket: reports to the launcher its identity, its program, and its regular end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @staticmethod
    def to_launcher(peer: Peer, heap_file: int) -> CrashReporter | None:
        """Connect to the launcher, if it listens on this machine; ``heap_file`` is this process's heap, or -1."""
        name = read_variable(_VARIABLE)
        if not name:
            return None
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect("\0" + name)
        except OSError:  # the launcher is on another machine
            connection.close()
            return None
        reporter = CrashReporter(connection)
        reporter._say({"hello": asdict(peer), "heap": heap_file})
        return reporter

    def plan(self, number: int, plan: CollectivePlan) -> None:
        """The names of a program's collectives."""
        self._say({"plan": plan.to_json(), "number": number})

    def reported(self) -> None:
        """This rank reports the error to the user."""
        self._say({"told": True})

    def close(self) -> None:
        """This rank ends in good order."""
        self._say({"bye": True})

    def _say(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # whoever asked is gone
            self._connection.sendall(json.dumps(message).encode() + b"\n")


class _Rank:
    """What one connection has said."""

    def __init__(self) -> None:
        self.text = b""
        self.peer: Peer | None = None
        self.heap: Any = None
        self.bye = False

    def map_heap(self, file: int) -> None:
        if self.peer is None or file < 0:
            return
        import numpy as np

        with contextlib.suppress(OSError, ValueError):
            opened = os.open(f"/proc/{self.peer.pid}/fd/{file}", os.O_RDONLY)
            try:
                size = os.fstat(opened).st_size
                self.heap = np.frombuffer(mmap.mmap(opened, size, mmap.MAP_SHARED, mmap.PROT_READ), np.uint8)
            finally:
                os.close(opened)


class CrashReport:
    """Listens to the ranks while a job runs, and reports the one that ended first without a word.

    Example: ``with CrashReport() as report: code = run(environ | report.environ)``, then ``report.first(code)``.
    """

    def __init__(self) -> None:
        self.environ: dict[str, str] = {}
        self._ranks: dict[socket.socket, _Rank] = {}
        self._plans: dict[int, CollectivePlan] = {}
        self._first: RunError | None = None
        self._found: Sequence[RankStatus] = ()
        self._rank = -1
        self._told = self._in_step = False
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._over = threading.Event()

    def __enter__(self) -> CrashReport:
        if sys.platform == "linux":  # names that are no files
            name = f"shardc-{secrets.token_hex(16)}"
            self._server = socket.socket(socket.AF_UNIX)
            self._server.bind("\0" + name)
            self._server.listen(1024)
            self._selector.register(self._server, selectors.EVENT_READ)
            self.environ = {_VARIABLE: name}
            self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(5)
            self._server.close()
        for connection in self._ranks:
            connection.close()

    def first(self, code: int) -> tuple[int, RunError] | None:
        """After the job: the rank that ended first without a word, and what is to be told; None if nobody did, or a
        rank has told the user already.

        ``code`` is the job's exit code. It is 0 also for some jobs that MPICH's launcher has killed, because a rank
        left in the middle with 0: then it counts that ranks were in a step.
        """
        good = self._told or self._first is None or (code == 0 and not self._in_step)
        return None if good or self._first is None else (self._rank, self._first)

    def record(self, folder: Path) -> None:
        """Write the flight recorder of what `first` tells into ``folder``."""
        from shardc.launcher.jobs.hang_diagnosis import write_flight_recorder

        if self._first is not None:
            write_flight_recorder(folder, "launcher", self._first, self._found, self._plans)

    def _listen(self) -> None:
        # Now, while ranks start: later the order of their ends would be lost.
        import shardc.launcher.jobs.hang_diagnosis  # noqa: F401

        while True:
            ready = self._selector.select(0.05)
            for key, _ in ready:
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is self._server:
                    self._accept()
                else:
                    self._hear(connection)
            if not ready and self._over.is_set():
                return

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        self._ranks[connection] = _Rank()
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> None:
        rank = self._ranks[connection]
        try:
            part = connection.recv(_PART)
        except OSError:
            part = b""
        rank.text += part
        *lines, rank.text = rank.text.split(b"\n")
        for line in lines:
            self._note(rank, json.loads(line))
        if not part or len(rank.text) > _MOST:
            self._selector.unregister(connection)
            if not rank.bye and rank.peer is not None and self._first is None:
                self._first, self._rank = self._ended(rank.peer), rank.peer.rank

    def _note(self, rank: _Rank, message: Mapping[str, Any]) -> None:
        from shardc.launcher.jobs.rank_status import CollectivePlan, Peer

        if "hello" in message:
            rank.peer = Peer(**message["hello"])
            rank.map_heap(int(message["heap"]))
        elif "plan" in message:
            self._plans[int(message["number"])] = CollectivePlan.from_json(message["plan"])
        elif "told" in message:
            self._told = True
        elif "bye" in message:
            rank.bye = True

    def _ended(self, peer: Peer) -> RunError:
        """``peer`` has ended without a word: where everybody is now."""
        from shardc.collectives.call.control_table import GONE, OUTSIDE, control_table
        from shardc.launcher.jobs.hang_diagnosis import diagnose_hang
        from shardc.launcher.jobs.rank_status import DEAD, RUNNING, UNKNOWN, RankStatus, rank_statuses

        now = time.monotonic_ns()
        found: list[RankStatus] = []
        for each in self._ranks.values():
            if each.peer is None:
                continue
            status = RankStatus(each.peer, RUNNING)
            if each.heap is not None:
                (status,) = rank_statuses(control_table([each.heap], 0), [each.peer], now)
            found.append(replace(status, process=DEAD if each.peer == peer else RUNNING))
        found.sort(key=lambda s: s.rank)
        self._in_step = any(s.state not in (UNKNOWN, OUTSIDE, GONE) for s in found)
        if all(s.state == GONE for s in found):  # they were about to end
            found = [replace(s, state=0) if s.peer == peer else s for s in found]
        self._found = found
        return diagnose_hang(found, self._plans, "seen by the launcher")
