"""The launchers of the MPI families: their names, and their options for the same settings."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shardc.launcher.jobs.hosts import Host
from shardc.launcher.jobs.launcher_output import HYDRA_PATTERN

__all__ = ["FAMILIES", "Family"]

#: Variables that ranks on other hosts need, where the launcher does not pass the whole environment on.
_NEEDED = ("SHARDC_", "JAX_", "XLA_", "MPI4PY_", "OMP_", "OPENBLAS_", "MKL_", "PYTHON", "VIRTUAL_ENV")
_NEEDED_WHOLE = ("PATH", "LD_LIBRARY_PATH")


def _nothing(hosts: Sequence[Host], folder: Path) -> list[str]:
    return []


def _by_name(hosts: Sequence[Host], folder: Path) -> list[str]:
    return ["-hosts", _counted(hosts)] if hosts else []


def _by_file(hosts: Sequence[Host], folder: Path) -> list[str]:
    """Intel's Hydra does not read the numbers behind names in ``-hosts``."""
    if not hosts:
        return []
    path = folder / "machines"
    path.write_text("".join(f"{h.name}:{h.slots}\n" for h in hosts))
    return ["-machinefile", str(path)]


def _open_mpi_hosts(hosts: Sequence[Host], folder: Path) -> list[str]:
    return ["--host", _counted(hosts)] if hosts else []


def _export_all(environ: Mapping[str, str]) -> list[str]:
    names = [n for n in sorted(environ) if n.startswith(_NEEDED) or n in _NEEDED_WHOLE]
    return [word for name in names for word in ("-x", name)]


def _export_nothing(environ: Mapping[str, str]) -> list[str]:
    """Hydra passes the environment on without options."""
    return []


def _counted(hosts: Sequence[Host]) -> str:
    return ",".join(f"{h.name}:{h.slots}" for h in hosts)


@dataclass(frozen=True, slots=True)
class Family:
    """One family of MPI libraries and its launcher.

    ``names`` are tried in order, ``marks`` are in what ``--version`` prints. ``placing`` gives the words for hosts
    (it may write a file into a folder), ``bindings`` those for a word of `shardc.launcher.jobs.affinity.BINDINGS`,
    ``marking`` those that mark output by rank, ``exporting`` those that pass variables to other hosts; ``variables``
    is set in the environment where nobody set it, ``crowded`` too when there are more ranks than cores, ``unbound``
    too where the launcher shall not bind. ``signals`` are exit codes that say by which signal a rank ended.
    """

    names: tuple[str, ...]
    marks: tuple[str, ...]
    placing: Callable[[Sequence[Host], Path], list[str]] = _nothing
    bindings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    marking: tuple[str, ...] = ()
    exporting: Callable[[Mapping[str, str]], list[str]] = _export_nothing
    variables: Mapping[str, str] = field(default_factory=dict)
    crowded: Mapping[str, str] = field(default_factory=dict)
    unbound: Mapping[str, str] = field(default_factory=dict)
    signals: frozenset[int] = frozenset()


_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT")

#: By `MpiLibrary.kind`.
FAMILIES: Mapping[str, Family] = {
    "mpich": Family(
        names=("mpiexec.hydra", "mpiexec.mpich", "mpiexec", "mpirun"),
        marks=("HYDRA", "MPICH"),
        placing=_by_name,
        bindings={"core": ("-bind-to", "core"), "numa": ("-bind-to", "numa")},
        marking=("-prepend-pattern", HYDRA_PATTERN),
        signals=frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)),
    ),
    "intel": Family(
        names=("mpiexec.hydra", "mpiexec", "mpirun"),
        marks=("Intel(R) MPI",),
        placing=_by_file,
        marking=("-prepend-pattern", HYDRA_PATTERN),
        bindings={
            "core": ("-genv", "I_MPI_PIN_DOMAIN", "core"),
            "numa": ("-genv", "I_MPI_PIN_DOMAIN", "numa"),
        },
        unbound={"I_MPI_PIN": "0"},
    ),
    "openmpi": Family(
        names=("mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec", "prterun"),
        marks=("Open MPI", "OpenRTE", "PRRTE"),
        placing=_open_mpi_hosts,
        bindings={"core": ("--bind-to", "core"), "numa": ("--bind-to", "numa"), "none": ("--bind-to", "none")},
        marking=("--tag-output",),
        exporting=_export_all,
        variables={
            **dict.fromkeys((*_ROOT, "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
            # Slots are cores there, not processors; how many ranks run is the user's choice.
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        },
        crowded={"OMPI_MCA_mpi_yield_when_idle": "1"},
        unbound={"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"},
    ),
    "unknown": Family(names=("mpiexec", "mpirun"), marks=("",)),
}
