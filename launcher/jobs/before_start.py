"""Checks of a job before its start: too many ranks, unknown hosts, and options that the launcher rejects."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.launcher.jobs.hosts import Host

__all__ = ["check_hosts", "check_ranks", "check_words"]

#: Variables that say how a launcher reaches hosts, which may know other names than this machine does.
_REACHING = ("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_", "OMPI_MCA_plm", "PRTE_MCA_plm")
_SIGN = "shardc: the launcher accepts it"
_SECONDS = 30.0


def check_ranks(ranks: int, hosts: Sequence[Host]) -> None:
    """Refuse more ranks on one host than it can have processes (of others, this one's numbers are taken)."""
    here = max((h.slots for h in hosts), default=ranks)
    most = _most_processes()
    if here > most:
        raise InputError(
            f"one host would start {here} ranks, but its limit is {most} processes",
            fix="use fewer ranks, more --hosts, or virtual devices (shardc run without --ranks)",
        )


def _most_processes() -> int:
    limits = [resource.getrlimit(resource.RLIMIT_NPROC)[0]]
    for name in ("pid_max", "threads-max"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path("/proc/sys/kernel", name).read_text()))
    return min((n for n in limits if n > 0), default=sys.maxsize)


def check_hosts(hosts: Sequence[Host], words: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
    """Refuse hosts that neither this machine nor ssh's configuration knows, unless the environment says how to reach
    them."""
    if words or any(name.startswith(_REACHING) for name in environ):
        return
    strange = [h.name for h in hosts if not _is_found(h.name)]
    if strange:
        raise InputError(
            f"--hosts: this machine cannot find {', '.join(strange)}",
            fix="give names or addresses that this machine finds, or a Host in ~/.ssh/config",
        )


def _is_found(name: str) -> bool:
    with contextlib.suppress(OSError, UnicodeError):
        return bool(socket.getaddrinfo(name, None))
    try:
        told = subprocess.run(["ssh", "-G", name], capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    known = dict(line.split(" ", 1) for line in told.stdout.splitlines() if " " in line)
    by_others = any(known.get(k, "none") != "none" for k in ("proxyjump", "proxycommand"))
    return by_others or known.get("hostname", name).lower() != name.lower()  # ssh prints small letters


def check_words(launcher: Path, words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Refuse words for the launcher (``--option``) with which it cannot start a small program. The test runs in an
    empty folder, since a launcher checks its options only when it uses them.
    """
    if not words:
        return
    given = " ".join(f"--option {w}" for w in words)
    fix = f"see {launcher.name} --help; pass an option and its value separately: --option=-env --option=NAME"
    if not words[0].startswith("-"):
        raise InputError(f"{given}: {words[0]!r} is not an option of the launcher", fix=fix)
    line = [str(launcher), "-n", "1", *words, sys.executable, "-IS", "-c", f"print({_SIGN!r})"]
    with tempfile.TemporaryDirectory(prefix="shardc-") as folder:
        try:
            done = subprocess.run(
                line, env=dict(environ), cwd=folder, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InputError(f"{given}: the launcher started nothing within {_SECONDS:g} s", fix=fix) from None
    if done.returncode or _SIGN not in done.stdout:
        lines = [re.sub(r"^\[.*?\] ", "", x).strip() for x in (done.stderr + done.stdout).splitlines()]
        said = next((x for x in lines if re.search(r"[a-z]", x)), f"exit code {done.returncode}")
        raise InputError(f"{given}: the launcher rejected the option: {said}", fix=fix)
