"""Which process of a rank is the rank: the first one that joins the job, and none that it starts afterwards.

What a launcher says of a rank is inherited by all processes below it: wrappers, which start the program, and children
of the program. So the rank adds its own number to its environment when it joins. Whoever inherits that is no rank, and
computes by itself. MPICH and its kin connect a rank by a socket, which also tells another job below a rank from it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

from shardc.collectives.call.forked import refuse_forked
from shardc.hlo.errors import EnvironmentProblem

__all__ = ["RANK_VARIABLE", "claim_rank", "is_below_rank", "running_mpi"]

#: The process that is the rank, and its connection to the launcher: what a rank passes on to its children.
RANK_VARIABLE = "SHARDC_RANK_PROCESS"


def is_below_rank(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a process above this one is the rank of which ``environ`` tells.

    Raises `EnvironmentProblem` in a process that was forked from the rank.
    """
    process, _, connection = environ.get(RANK_VARIABLE, "").partition(":")
    if process in ("", str(os.getpid())) or _is_of_another_job(connection, environ):
        return False
    if running_mpi() is not None:
        refuse_forked(int(process))
    return True


def claim_rank(environ: MutableMapping[str, str] = os.environ) -> None:
    """Make this process the rank, before it starts MPI.

    Raises `EnvironmentProblem` where another process is it, or where the launcher cannot be reached any more.
    """
    number = _connection(environ)
    if "PMI_FD" in environ and number is None and running_mpi() is None:
        raise EnvironmentProblem(
            f"this process has no connection to the launcher (PMI_FD={environ['PMI_FD']} is closed), so it cannot be "
            "the rank",
            fix="to start it from the rank, first call shardc.process_index() there: the child computes on virtual "
            "devices of its own; to make it the rank, start it by os.execv or with close_fds=False",
        )
    if number is not None:
        _lock(number)
    environ[RANK_VARIABLE] = f"{os.getpid()}:{'' if number is None else os.fstat(number).st_ino}"


def running_mpi() -> Any | None:
    """The module ``mpi4py.MPI`` where MPI is initialised in the memory of this process, else None."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None


def _lock(connection: int) -> None:
    """Keep other processes that have the same connection from being the rank, as long as this process lives."""
    import fcntl

    with contextlib.suppress(OSError):  # a system that locks no sockets
        try:
            fcntl.lockf(connection, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise EnvironmentProblem(
                "another process of this rank has joined the job already",
                fix="call shardc.process_index() in the rank before it starts processes that use shardc; a wrapper "
                "must start only one program per rank",
            ) from None


def _connection(environ: Mapping[str, str]) -> int | None:
    """The number of the socket that connects this process with its launcher, if it is open."""
    try:
        number = int(environ["PMI_FD"])
        return number if stat.S_ISSOCK(os.fstat(number).st_mode) else None
    except (KeyError, ValueError, OSError):
        return None


def _is_of_another_job(connection: str, environ: Mapping[str, str]) -> bool:
    """Whether this process has a socket of a launcher, and not the one of the rank above it."""
    number = _connection(environ)
    if number is None or str(os.fstat(number).st_ino) == connection:
        return False
    return _peer(number) not in (0, os.getpid())  # the number may be used for a socket of this process's own


def _peer(number: int) -> int:
    """The process at the other end of a socket on this machine; 0 where the system does not know it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    opened = socket.socket(fileno=number)
    try:
        return int.from_bytes(opened.getsockopt(socket.SOL_SOCKET, option, 4), sys.byteorder)
    finally:
        opened.detach()  # closing would also give up the lock
