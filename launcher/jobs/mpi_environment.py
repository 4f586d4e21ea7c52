"""Finds the launcher of this process and the MPI library that it would load, and checks that they fit. Only `start_mpi`
loads libmpi: a login node must not. With a mismatched pair, every rank is a separate world (or MPI_Init aborts), so it
is refused before the library is loaded, and the world's size is compared with the launcher's after.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shardc.hlo.errors import EnvironmentProblem
from shardc.launcher.jobs.rank_process import claim_rank, is_below_rank

__all__ = [
    "RANKS_VARIABLE",
    "Launcher",
    "MpiLibrary",
    "check",
    "detect_launcher",
    "find_library",
    "missing_library",
    "start_mpi",
]

#: The size of the job that `shardc mpiexec` starts, whatever its launcher tells.
RANKS_VARIABLE = "SHARDC_RANKS"


@dataclass(frozen=True, slots=True)
class Launcher:
    """What the environment says of the job.

    ``kind`` is ``openmpi`` (its mpirun), ``pmi`` (MPICH's or Intel's mpiexec, or ``srun --mpi=pmi2``), ``pmix`` (PRRTE,
    ``srun --mpi=pmix``), ``slurm`` (srun that gives MPI nothing) or ``shardc`` (`shardc mpiexec` with a launcher that
    says nothing by itself). ``size`` and ``rank`` are 0 and -1 where unknown.
    """

    kind: str
    size: int
    rank: int
    evidence: str

    @property
    def title(self) -> str:
        names = {
            "openmpi": "Open MPI's mpirun",
            "pmi": "a PMI launcher (MPICH's or Intel MPI's mpiexec, or srun --mpi=pmi2)",
            "pmix": "a PMIx launcher (Open MPI 5's mpirun, or srun --mpi=pmix)",
            "slurm": "srun without an MPI plug-in",
            "shardc": "shardc mpiexec",
        }
        return f"{names[self.kind]} ({self.evidence})"


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """``kind`` is ``mpich``, ``openmpi``, ``intel`` or ``unknown``; ``path`` the file that would be loaded."""

    kind: str
    path: Path

    @property
    def title(self) -> str:
        names = {"mpich": "MPICH", "openmpi": "Open MPI", "intel": "Intel MPI", "unknown": "an MPI library"}
        return f"{names[self.kind]} ({self.path})"


def detect_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """The launcher that started this process, or None outside of a job of several processes and below its ranks.

    SLURM_NTASKS is not a sign: it is set for a whole allocation, also where nothing was launched. Raises
    `EnvironmentProblem` in a process that was forked from a rank.
    """
    if is_below_rank(environ):
        return None

    def number(name: str, default: int = 0) -> int:
        text = environ.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else default

    def made(kind: str, size: str, rank: str) -> Launcher:
        return Launcher(kind, number(size), number(rank, -1), f"{size}={environ[size]}" if size in environ else rank)

    if "OMPI_COMM_WORLD_SIZE" in environ:
        found = made("openmpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
    elif "PMI_SIZE" in environ:
        found = made("pmi", "PMI_SIZE", "PMI_RANK")
    elif "PMIX_RANK" in environ:
        step = "SLURM_STEP_NUM_TASKS"
        found = made("pmix", step if step in environ else RANKS_VARIABLE, "PMIX_RANK")
    elif number("SLURM_STEP_NUM_TASKS") > 1:
        handed = any(name.startswith(("PMI_", "PALS_")) for name in environ) or "I_MPI_PMI_LIBRARY" in environ
        found = made("pmi" if handed else "slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
    elif number(RANKS_VARIABLE) > 1:
        found = made("shardc", RANKS_VARIABLE, "")
    else:
        return None
    return None if found.size == 1 else found


def find_library(environ: Mapping[str, str] = os.environ) -> MpiLibrary | None:
    """The library that mpi4py would load, found by its own rules but without loading it; None if there is none."""
    for path in _candidates(environ):
        if _is_binary(path):
            return MpiLibrary(_kind_of(path.resolve()), path)
    return None


def missing_library(environ: Mapping[str, str] = os.environ) -> EnvironmentProblem:
    """The error where `find_library` finds none."""
    given = environ.get("MPI4PY_LIBMPI", "")
    named = Path(given)
    if named.is_file() and not _is_binary(named):
        return EnvironmentProblem(
            f"MPI4PY_LIBMPI={named} is a linker script, not a library",
            fix=f"name its folder, {named.parent}, or the libmpi.so.NUMBER in it",
        )
    if given:
        return EnvironmentProblem(
            f"MPI4PY_LIBMPI={given} leads to no MPI library",
            fix="unset it, or set it to the path of a libmpi.so.NUMBER that is there, or of its folder",
        )
    return EnvironmentProblem(
        "no MPI library was found",
        where="MPI4PY_LIBMPI, the Python environment's lib folder, the system's library path",
        fix="pip install 'shardc[mpich]', or set MPI4PY_LIBMPI=/path/to/libmpi.so of the machine's MPI",
    )


def check(launcher: Launcher | None, library: MpiLibrary | None, *, mpiexec: str = "shardc mpiexec") -> None:
    """Raise `EnvironmentProblem` when there is no library, or one that the launcher cannot start."""
    if library is None:
        raise missing_library()
    if launcher is None:
        return
    own = f"start the job with `{mpiexec} -n {launcher.size or 'N'} ...`, which finds the launcher of this library"
    if launcher.kind == "slurm":
        raise EnvironmentProblem(
            f"the job was started by {launcher.title}: {library.title} would start {launcher.size} separate "
            "worlds of one rank",
            fix=f"use srun --mpi=pmi2 (or pmix, see srun --mpi=list), or {own}",
        )
    in_slurm_step = "SLURM_STEP_NUM_TASKS" in launcher.evidence
    wrong = (launcher.kind == "openmpi" and library.kind in ("mpich", "intel")) or (
        launcher.kind == "pmi" and library.kind == "openmpi" and not in_slurm_step
    )
    if wrong:
        raise EnvironmentProblem(
            f"the job was started by {launcher.title}, but the MPI library is {library.title}",
            fix=f"{own}; or set MPI4PY_LIBMPI=/path/to/libmpi.so of the launcher's MPI",
        )


def start_mpi(environ: MutableMapping[str, str] = os.environ) -> Any:
    """Load and initialise MPI after the checks; returns the module ``mpi4py.MPI``.

    From now on this process is the rank, and its children are not. Raises `EnvironmentProblem` on a missing library, a
    launcher of another MPI, a world of another size, and where another process is the rank.
    """
    launcher = detect_launcher(environ)
    if "mpi4py.MPI" not in sys.modules:
        if find_spec("mpi4py") is None:
            raise EnvironmentProblem("the package mpi4py is not installed", fix="pip install mpi4py")
        check(launcher, find_library(environ))
    if launcher is not None:
        claim_rank(environ)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as e:
        library = find_library(environ)
        raise EnvironmentProblem(
            f"the MPI library cannot be loaded: {str(e).splitlines()[0]}",
            where=library.title if library else None,
            fix="pip install 'shardc[mpich]', or set MPI4PY_LIBMPI=/path/to/libmpi.so of the machine's MPI",
        ) from None
    size = MPI.COMM_WORLD.Get_size()
    expected = launcher.size if launcher else 0
    alone = launcher is not None and size == 1 and launcher.rank > 0
    if launcher is not None and (alone or (expected and size != expected)):
        raise EnvironmentProblem(
            f"the launcher started {expected or 'several'} processes, but MPI sees a world of {size}",
            where=f"{launcher.title}; library: {MPI.Get_library_version().splitlines()[0]}",
            fix="launcher and library belong to different MPIs: use `shardc mpiexec`, srun --mpi=pmi2, "
            "or MPI4PY_LIBMPI=/path/to/libmpi.so of the launcher's MPI",
        )
    return MPI


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Files in the order in which mpi4py tries them; bare names go through the system's search."""
    listed = environ.get("MPI4PY_LIBMPI")
    linked = _linked_library()
    if linked is not None:
        yield from _system(linked, environ)
        return
    for entry in listed.split(os.pathsep) if listed else [*_prefix_folders(), ""]:
        folder = Path(os.path.expandvars(entry)).expanduser()
        if entry and not folder.is_dir():
            if os.sep in entry:
                yield folder
            else:
                yield from _system(entry, environ)
            continue
        for name in _library_names():
            if entry:
                yield folder / name
            else:
                yield from _system(name, environ)


def _prefix_folders() -> list[str]:
    prefixes = [sys.exec_prefix] if sys.exec_prefix != sys.base_exec_prefix else []
    site = sys.modules.get("site")
    if site is not None and getattr(site, "ENABLE_USER_SITE", False) and site.USER_BASE:
        prefixes.append(site.USER_BASE)
    prefixes.append(sys.base_exec_prefix)
    folders = [str(Path(p) / "lib") for p in prefixes if p != "/usr"]
    return folders + (["/usr/local/lib", "/opt/homebrew/lib", "/opt/local/lib"] if sys.platform == "darwin" else [])


def _library_names() -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("libmpi.dylib", "libmpi.12.dylib", "libmpi.40.dylib")
    return ("libmpi.so", "libmpi.so.12", "libmpi.so.40")


def _linked_library() -> str | None:
    """The library that an mpi4py built against one MPI is linked to; None for the wheel that fits several."""
    spec = find_spec("mpi4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        extension = Path(folder) / ("MPI" + sysconfig.get_config_var("EXT_SUFFIX"))
        if extension.is_file():
            name = re.search(rb"lib(mpi|mpich|mpi_cray)(_abi)?[\w-]*\.(so|dylib)(\.\d+)?\x00", extension.read_bytes())
            return name.group(0)[:-1].decode() if name else None
    return None


def _system(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where the dynamic linker would look for a bare name."""
    variable = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    for folder in filter(None, environ.get(variable, "").split(os.pathsep)):
        yield Path(folder) / name
    yield from _ldconfig().get(name, [])
    for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"):
        yield Path(folder) / name


@cache
def _ldconfig() -> dict[str, list[Path]]:
    import subprocess

    found: dict[str, list[Path]] = {}
    for tool in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if Path(tool).exists():
            done = subprocess.run([tool, "-p"], capture_output=True, text=True, check=False)
            for line in done.stdout.splitlines():
                name, _, path = line.partition(" => ")
                if path and "libmpi" in name:
                    found.setdefault(name.split()[0], []).append(Path(path.strip()))
            break
    return found


def _is_binary(path: Path) -> bool:
    """A shared library, and not a linker script of the same name."""
    try:
        with path.open("rb") as file:
            return file.read(4) in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
    except OSError:
        return False


def _kind_of(path: Path) -> str:
    """Recognise a library by strings that each MPI carries, then by its file name."""
    marks = ((b"ompi_mpi_comm_self", "openmpi"), (b"Intel(R) MPI", "intel"), (b"MPICH", "mpich"))
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for mark, kind in marks:
                if data.find(mark) >= 0:
                    return kind
    except (OSError, ValueError):
        pass
    version = re.search(r"\.(\d+)(?:\.|$)", path.name)
    return {"40": "openmpi", "80": "openmpi", "12": "mpich"}.get(version.group(1) if version else "", "unknown")
