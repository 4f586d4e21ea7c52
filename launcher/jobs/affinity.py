"""Which cores the ranks of a node run on, and how many threads a rank may use there.

`shardc mpiexec` leaves the binding of Python ranks to this file instead of the launchers, whose options and defaults
differ: before anything starts threads, a rank confines itself to its share of the node's cores.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.hlo.units import count_text
from shardc.hlo.variables import read_variable
from shardc.launcher.jobs.mpi_environment import start_mpi
from shardc.launcher.jobs.shared_files import forget_shared_files

__all__ = [
    "BINDINGS",
    "BIND_VARIABLE",
    "Core",
    "bind_rank",
    "check_binding",
    "cores_here",
    "local_place",
    "local_processors",
    "share_of",
    "threads_for",
]

#: What ``--bind`` takes. ``auto``: each rank an equal part of the cores, nothing when there are more ranks than cores.
BINDINGS = ("auto", "none", "core", "numa")
#: How `shardc mpiexec` tells its ranks.
BIND_VARIABLE = "SHARDC_BIND"
#: Rank and number of ranks on this node: Open MPI; MPICH, Intel MPI and their kin.
_PLACES = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
)
_SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, order=True)
class Core:
    """A physical core: its NUMA domain, its smallest processor number, and all of them (hardware threads)."""

    numa: int
    first: int
    processors: tuple[int, ...]


def check_binding(how: str) -> None:
    """Raise `InputError` unless ``how`` is one of `BINDINGS`."""
    if how not in BINDINGS:
        raise InputError(f"unknown value of --bind: {how}", fix=f"use one of {', '.join(BINDINGS)}")


def processors_here() -> frozenset[int]:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cores_here(allowed: Iterable[int], system: Path = _SYSTEM) -> list[Core]:
    """The cores behind the processors ``allowed``, neighbours first; a processor that says nothing is a core."""
    wanted = set(allowed)
    found = set()
    for number in sorted(wanted):
        folder = system / f"cpu{number}"
        siblings = _numbers(_text(folder / "topology" / "thread_siblings_list")) & wanted or {number}
        nodes = [int(p.name[4:]) for p in folder.glob("node[0-9]*")]
        found.add(Core(min(nodes, default=0), min(siblings), tuple(sorted(siblings))))
    return sorted(found)


def share_of(how: str, cores: Sequence[Core], rank: int, ranks: int) -> frozenset[int] | None:
    """The processors for ``rank`` of the ``ranks`` on a node; None where it is not bound.

    The parts of different ranks are disjoint (but for ``numa``, where ranks share a domain), neighbouring ranks get
    neighbouring cores, and together they cover all cores under ``auto``. Raises `EnvironmentProblem` for one core per
    rank where there are fewer cores.
    """
    if how == "none" or (how == "auto" and ranks > len(cores)):
        return None
    if how == "numa":
        domains = sorted({c.numa for c in cores})
        mine = domains[rank * len(domains) // ranks]
        return frozenset(p for c in cores if c.numa == mine for p in c.processors)
    if ranks > len(cores):
        raise EnvironmentProblem(
            f"--bind core: this node has {count_text(ranks, 'rank')}, but only {count_text(len(cores), 'core')}",
            fix="start fewer ranks, or use --bind none",
        )
    start, stop = (rank, rank + 1) if how == "core" else (i * len(cores) // ranks for i in (rank, rank + 1))
    return frozenset(p for c in cores[start:stop] for p in c.processors)


def local_place(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Number of this rank on its node, and how many there are, as the launcher says; None where it does not."""
    for rank, size in _PLACES:
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return int(environ[rank]), int(environ[size])
    return None


def bind_rank(environ: Mapping[str, str] = os.environ) -> frozenset[int] | None:
    """Confine this process, started by `shardc mpiexec`, to its cores; the processors, or None where nothing is done.

    Call it before threads start: they inherit the cores.
    """
    how, place = read_variable(BIND_VARIABLE, environ) or "none", local_place(environ)
    if place is None or not hasattr(os, "sched_setaffinity"):
        return None
    mine = share_of(how, cores_here(processors_here()), *place)
    if mine is not None:
        os.sched_setaffinity(0, mine)
    return mine


def threads_for(mine: Iterable[int], all_local: Iterable[Iterable[int]]) -> int:
    """Threads for a process on the processors ``mine``, each shared with the other processes that may run there.

    ``all_local`` are the processors of every process on the node, this one's among them.
    """
    users = Counter(p for processors in all_local for p in set(processors))
    return max(1, int(sum(1 / users[p] for p in set(mine)) + 1e-9))


def _numbers(text: str) -> set[int]:
    """``"0-2,8"`` as numbers."""
    out: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if ends:
            out |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return out


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@cache
def local_processors() -> tuple[frozenset[int], ...]:
    """Where each rank of this node may run."""
    mpi = start_mpi()
    node = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    local = tuple(node.allgather(processors_here()))
    if node.Get_rank() == 0:
        forget_shared_files()
    node.Free()
    return local
