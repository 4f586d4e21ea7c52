"""The hosts of a job: ``a:2,b:2``, hostfiles in the notations of all launchers, and who runs where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.hlo.files import near_files
from shardc.hlo.units import count_text

__all__ = ["Host", "parse_hosts", "place_ranks", "read_hostfile"]

_NAME = r"(?P<name>\w[\w.-]*)"
_INLINE = re.compile(rf"{_NAME}(?::(?P<slots>\d+))?")
_LINE = re.compile(rf"{_NAME}(?:\s*:\s*(?P<slots>\d+))?(?P<rest>(?:\s+[\w-]+\s*=\s*\S+)*)\s*")
_SLOTS = re.compile(r"\b(?:slots|cpus?|maxprocs)\s*=\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Host:
    """A machine and how many ranks it takes; 0: an equal share."""

    name: str
    slots: int = 0


def parse_hosts(text: str) -> tuple[Host, ...]:
    """``"a:2,b:2"`` or ``"a,b"``. Raises `InputError` for anything else."""
    out = []
    for entry in text.split(","):
        found = _INLINE.fullmatch(entry.strip())
        if found is None or found["slots"] == "0":
            raise InputError(f"--hosts {text}: {entry!r} is not a host", fix="write a,b or a:2,b:2")
        out.append(Host(found["name"], int(found["slots"] or 0)))
    return _joined(out)


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """A line per host: ``a``, ``a:2`` (MPICH, Intel MPI) or ``a slots=2`` (Open MPI); ``#`` begins a comment.

    A host that comes several times takes the sum. Raises `InputError` naming the line.
    """
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise InputError(f"there is no hostfile {path}", fix=near_files(path)) from None
    except (OSError, UnicodeDecodeError) as e:
        fix = "name a text file with one host per line, such as a:2"
        raise InputError(f"the hostfile cannot be read: {e}", where=str(path), fix=fix) from None
    out = []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].strip()
        if not words:
            continue
        found = _LINE.fullmatch(words)
        if found is None:
            raise InputError(f"{words!r} is not a host", where=f"{path}:{number}", fix="write a, a:2 or a slots=2")
        slots = _SLOTS.search(found["rest"])
        out.append(Host(found["name"], int(found["slots"] or (slots[1] if slots else 0))))
    if not out:
        raise InputError("the hostfile names no host", where=str(path), fix="write one host per line, such as a:2")
    return _joined(out)


def place_ranks(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """The number of ``ranks`` on each host, in blocks in their order, without unused hosts. Hosts with a number of
    slots take at most that many; the others share the rest equally. Raises `InputError` when there are more ranks than
    all of them take.
    """
    left = ranks
    sharing = sum(h.slots == 0 for h in hosts)
    named = sum(h.slots for h in hosts)
    if hosts and not sharing and named < ranks:
        raise InputError(
            f"{count_text(ranks, 'rank')} need more than the {named} slots of "
            f"{', '.join(f'{h.name}:{h.slots}' for h in hosts)}",
            fix="give the hosts more slots (a:4), or omit the numbers",
        )
    rest = max(0, ranks - named)
    out = []
    for host in hosts:
        count = host.slots
        if not count:
            count = -(-rest // sharing)
            rest, sharing = rest - count, sharing - 1
        count = min(count, left)
        left -= count
        if count:
            out.append(Host(host.name, count))
    return tuple(out)


def _joined(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """A host named several times takes the sum, one without a number counting once."""
    if len({h.name for h in hosts}) == len(hosts):
        return tuple(hosts)
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + (host.slots or 1)
    return tuple(Host(name, count) for name, count in slots.items())
