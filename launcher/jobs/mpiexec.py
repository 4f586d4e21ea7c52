"""Starting MPI jobs with the launcher that belongs to the MPI library."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.hlo.files import near_files
from shardc.hlo.units import count_text
from shardc.hlo.variables import read_variable
from shardc.launcher.jobs.affinity import BIND_VARIABLE, check_binding, processors_here
from shardc.launcher.jobs.before_start import check_hosts, check_ranks, check_words
from shardc.launcher.jobs.crash_report import CrashReport
from shardc.launcher.jobs.failures import describe, prefixed
from shardc.launcher.jobs.hosts import Host, place_ranks
from shardc.launcher.jobs.launcher_output import LauncherOutput
from shardc.launcher.jobs.launchers import FAMILIES
from shardc.launcher.jobs.mpi_environment import RANKS_VARIABLE, MpiLibrary, check, detect_launcher, find_library
from shardc.launcher.jobs.orphans import ending_with
from shardc.launcher.jobs.rank_process import RANK_VARIABLE
from shardc.launcher.jobs.shared_files import sweep_shared_files

__all__ = ["JobOptions", "check_script", "find_mpiexec", "job_environment", "python_command", "start_job"]

#: Seconds that a launcher gets to end its job.
_GRACE = 5.0
#: Interpreter options that take the next word as their value.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_RUNNER = "shardc.launcher.jobs.rank_main"


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


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How a job is started: on which hosts (none: this one, or the allocation's), bound to which cores (a word of
    `BINDINGS`), whether each line of output names its rank, and words for the launcher as they are."""

    hosts: tuple[Host, ...] = ()
    bind: str = "auto"
    prefix: bool = False
    words: tuple[str, ...] = ()


_OPTIONS = JobOptions()


def start_job(
    ranks: int,
    command: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    options: JobOptions = _OPTIONS,
) -> int:
    """Run ``command`` on ``ranks`` ranks and return the job's exit code: that of the rank that failed, 130 when
    interrupted, 1 when a rank was killed.

    Raises `EnvironmentProblem` without MPI or launcher, and `InputError` for malformed variables of shardc, inside
    of a running job, for more ranks than hosts take, hosts that nobody knows and words that the launcher does not
    take: nothing is started then.
    """
    if ranks < 1:
        raise InputError(f"the job would have {count_text(ranks, 'rank')}", fix="start at least 1 rank")
    check_binding(options.bind)
    Config.from_environment(environ)  # every rank would say what is wrong there
    running = detect_launcher(environ)
    if running is not None:
        raise InputError(
            f"this process is already part of a job, started by {running.title}",
            fix="omit --ranks (or shardc mpiexec): the command joins the job that started it",
        )
    if not options.hosts and shutil.which(command[0], path=environ.get("PATH")) is None:
        raise _no_program(command[0])
    if not options.hosts and _RUNNER in command:
        _check_python(command[0], environ)
    library = find_library(environ)
    check(None, library)
    assert library is not None
    family = FAMILIES[library.kind]
    hosts = place_ranks(options.hosts, ranks)
    check_ranks(ranks, hosts)
    check_hosts(hosts, options.words, environ)
    launcher = find_mpiexec(library, environ)
    check_words(launcher, options.words, job_environment(library, 1, environ))
    with tempfile.TemporaryDirectory(prefix="shardc-") as folder:
        line = [str(launcher), "-n", str(ranks), *family.placing(hosts, Path(folder))]
        # Python ranks bind themselves, other programs as the launcher does.
        python = _RUNNER in command
        bind = "none" if python else options.bind
        line += [*family.bindings.get(bind, ()), *(family.marking if options.prefix else ())]
        job = job_environment(library, ranks, environ, bind=bind, several_hosts=len(hosts) > 1)
        job[BIND_VARIABLE] = options.bind if python else "none"
        if len(hosts) > 1:
            line += family.exporting(job)
        output = LauncherOutput(library.kind, by_rank=options.prefix)
        with CrashReport() as report, _swept() as job_ended:
            code = _supervise([*line, *options.words, *command], job | report.environ, output)
            job_ended(code)
        ended = report.first(code) if code != 130 and not output.aborted else None
        if ended is not None:
            folder = read_variable("SHARDC_DUMP_TO", environ)
            if folder is not None:
                report.record(folder)
            print(prefixed(ended[0], describe(ended[1])), file=sys.stderr, flush=True)
            code = code or 1
    killed = (code in family.signals and not output.aborted) or code > 125 or code < 0
    return 1 if killed and code != 130 else code


def _check_python(python: str, environ: Mapping[str, str]) -> None:
    """See that a Python that is not this one has shardc, which every rank starts with."""
    path = shutil.which(python, path=environ.get("PATH")) or python
    if Path(path).absolute() == Path(sys.executable).absolute():
        return
    look = "import importlib.util as u, sys; sys.exit(3 if u.find_spec('shardc') is None else 0)"
    if subprocess.run([path, "-c", look], env=dict(environ), capture_output=True, check=False).returncode == 3:
        raise InputError(
            f"shardc is not installed for the Python of {python!r}",
            where=path,
            fix=f"activate the environment of shardc, or start the ranks with {sys.executable}",
        )


@contextlib.contextmanager
def _swept() -> Iterator[Callable[[int], None]]:
    """Remove what the ranks of a job left in shared memory, unless the job tells that it ended with code 0."""
    begin, codes = time.time(), list[int]()
    try:
        yield codes.append
    finally:
        if codes != [0]:
            sweep_shared_files(begin)


def _supervise(line: Sequence[str], environ: Mapping[str, str], output: LauncherOutput) -> int:
    """Run a launcher to its end; when this process is interrupted, terminated or killed, the job is too."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    process = output.start(ending_with(os.getpid(), line), environ)
    try:
        return process.wait()
    except KeyboardInterrupt:
        _end(process, signal.SIGINT)
        return 130
    finally:
        _end(process, signal.SIGTERM)
        output.join(_GRACE)
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Ask a launcher to end its job; insist after some seconds."""
    if process.poll() is not None:
        return
    process.send_signal(number)
    try:
        process.wait(_GRACE)
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
    return [*words[:at], "-m", _RUNNER, *words[at:]]


def _no_program(word: str) -> InputError:
    """What is wrong with ``word``, which names no program to start."""
    fix = "give its path; write python in front of a script"
    path = Path(word)
    if path.is_dir():
        return InputError(f"{word} is a folder", fix=fix)
    if os.sep in word and path.is_file():
        return InputError(f"{word} is not executable", fix=f"chmod +x {word}; write python in front of a script")
    return InputError(f"there is no program {word!r}", fix=fix)


def check_script(command: Sequence[str]) -> None:
    """Raise `InputError` where ``command`` is Python with a script that is missing, as a program that is missing does.

    Otherwise every rank would print the traceback of its start.
    """
    line = python_command(command)
    if _RUNNER not in line:
        return
    script = line[line.index(_RUNNER) + 1]
    if not script.startswith("-") and not Path(script).exists():
        raise InputError(f"there is no file {script}", fix=near_files(Path(script)))


def job_environment(
    library: MpiLibrary,
    ranks: int,
    environ: Mapping[str, str] = os.environ,
    *,
    bind: str = "none",
    several_hosts: bool = False,
) -> dict[str, str]:
    """The environment of a job: its size, one thread per rank in numerical libraries, more ranks than cores allowed."""
    family = FAMILIES[library.kind]
    out = dict(environ)
    out[RANKS_VARIABLE] = str(ranks)
    out.pop(RANK_VARIABLE, None)
    defaults = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    crowded = ranks > len(processors_here()) and not several_hosts
    defaults |= family.variables
    defaults |= family.crowded if crowded else {}
    defaults |= family.unbound if bind == "none" or (bind == "auto" and crowded) else {}
    return {**defaults, **out}


def _launchers(library: MpiLibrary, environ: Mapping[str, str]) -> Iterator[Path]:
    names = FAMILIES[library.kind].names
    resolved = library.path.resolve()
    folders = dict.fromkeys(p / "bin" for path in (library.path, resolved) for p in list(path.parents)[1:4])
    for folder in folders:
        for name in names:
            if os.access(folder / name, os.X_OK):
                yield folder / name
    for name in names:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            yield Path(found)


def _belongs(path: Path, kind: str) -> bool:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(mark in done.stdout + done.stderr for mark in FAMILIES[kind].marks)
