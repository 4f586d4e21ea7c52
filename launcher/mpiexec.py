"""Starting MPI jobs with the launcher that belongs to the MPI library."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.mpi_environment import MpiLibrary, check, detect_launcher, find_library

__all__ = ["find_mpiexec", "job_environment", "python_command", "start_job"]

_NAMES = {
    "mpich": ("mpiexec.hydra", "mpiexec.mpich", "mpiexec", "mpirun"),
    "intel": ("mpiexec.hydra", "mpiexec", "mpirun"),
    "openmpi": ("mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec", "prterun"),
    "unknown": ("mpiexec", "mpirun"),
}
_VERSION_MARKS = {
    "mpich": ("HYDRA", "MPICH"),
    "intel": ("Intel(R) MPI",),
    "openmpi": ("Open MPI", "OpenRTE", "PRRTE"),
    "unknown": ("",),
}
#: Seconds that a launcher gets to end its job.
_PATIENCE = 5.0
#: Interpreter options that take the next word as their value.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def find_mpiexec(library: MpiLibrary, environ: Mapping[str, str] = os.environ) -> Path:
    """The launcher of ``library``: beside the library first, then on PATH; its ``--version`` must agree."""
    tried = []
    for path in _launchers(library, environ):
        tried.append(str(path))
        if _belongs(path, library.kind):
            return path
    raise EnvironmentProblem(
        f"no launcher for {library.title} was found",
        where=f"tried {', '.join(tried) or 'PATH'}",
        fix="add the folder with its mpiexec to PATH, or use the MPICH wheel: pip install 'shardc[mpich]'",
    )


def start_job(
    ranks: int, command: Sequence[str], environ: Mapping[str, str] = os.environ, options: Sequence[str] = ()
) -> int:
    """Run ``command`` on ``ranks`` ranks and return the job's exit code (0, 1, 2 or 130).

    ``options`` go to the launcher as they are. Raises `EnvironmentProblem` without MPI or launcher, and
    `InputError` inside of a running job.
    """
    if ranks < 1:
        raise InputError(f"a job of {ranks} ranks", fix="ranks are at least 1")
    running = detect_launcher(environ)
    if running is not None:
        raise InputError(
            f"this process is already part of a job, started by {running.title}",
            fix="leave out --ranks (or shardc mpiexec): the command joins the job it is started in",
        )
    library = find_library(environ)
    check(None, library)
    assert library is not None
    line = [str(find_mpiexec(library, environ)), "-n", str(ranks), *options, *command]
    code = _supervise(line, job_environment(library, ranks, environ))
    return code if code in (0, 2, 130) else 1


def _supervise(line: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a launcher to its end; when this process is interrupted or terminated, the job is too."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop) if threading.current_thread() is threading.main_thread() else None
    process = subprocess.Popen(line, env=dict(environ))
    try:
        return process.wait()
    except KeyboardInterrupt:
        _end(process, signal.SIGINT)
        return 130
    finally:
        _end(process, signal.SIGTERM)
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Ask a launcher to end its job; insist after some seconds."""
    if process.poll() is not None:
        return
    process.send_signal(number)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def python_command(command: Sequence[str]) -> list[str]:
    """``python [options] script ...`` with our rank runner put before the script; other programs unchanged."""
    words = list(command)
    if not words or not re.fullmatch(r"(python|pypy)[\d.]*", Path(words[0]).name):
        return words
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    if at == len(words):
        return words
    return [*words[:at], "-m", "shardc.launcher.rank_main", *words[at:]]


def job_environment(library: MpiLibrary, ranks: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a job: one thread per rank in numerical libraries, and more ranks than cores allowed."""
    out = dict(environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        out.setdefault(name, "1")
    if library.kind == "openmpi":
        out.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
        out.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        out.setdefault("PRTE_ALLOW_RUN_AS_ROOT", "1")
        out.setdefault("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        if ranks > (os.cpu_count() or 1):
            out.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
            out.setdefault("OMPI_MCA_hwloc_base_binding_policy", "none")
            out.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
            out.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
            out.setdefault("PRTE_MCA_hwloc_default_binding_policy", "none")
    return out


def _launchers(library: MpiLibrary, environ: Mapping[str, str]) -> Iterator[Path]:
    names = _NAMES[library.kind]
    resolved = library.path.resolve()
    homes = dict.fromkeys(p / "bin" for path in (library.path, resolved) for p in list(path.parents)[1:4])
    for home in homes:
        for name in names:
            if os.access(home / name, os.X_OK):
                yield home / name
    for name in names:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            yield Path(found)


def _belongs(path: Path, kind: str) -> bool:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(mark in done.stdout + done.stderr for mark in _VERSION_MARKS[kind])
