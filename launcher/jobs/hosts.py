"""The hosts of a job: ``a:2,b:2``, hostfiles in the notations of all launchers, and who runs where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.hlo.files import near_files
from shardc.hlo.known_keys import require_known
from shardc.hlo.units import count_text

__all__ = ["Host", "parse_hosts", "place_ranks", "read_hostfile"]

_NAME = r"(?P<name>\w[\w.-]*)"
_INLINE = re.compile(rf"{_NAME}(?::(?P<slots>\d+))?")
_LINE = re.compile(rf"{_NAME}(?:\s*:\s*(?P<slots>\d+))?(?P<rest>(?:\s+[\w-]+\s*=\s*\S+)*)\s*")
_ENTRY = re.compile(r"([\w-]+)\s*=\s*(\S+)")
#: Words for the number of ranks, and further ones that launchers know.
_SLOTS = ("slots", "cpus", "cpu", "maxprocs")
_OTHERS = ("max_slots", "max-slots", "binding", "user", "ifhn")


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
            given = text if text.strip() else "is empty"
            raise InputError(f"--hosts {given}: {entry!r} is not a host", fix="write a,b or a:2,b:2, or omit it")
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
        out.append(Host(found["name"], int(found["slots"] or _slots(found["rest"], f"{path}:{number}"))))
    if not out:
        raise InputError("the hostfile names no host", where=str(path), fix="write one host per line, such as a:2")
    return _joined(out)


def _slots(rest: str, where: str) -> int:
    """The number of ranks that the entries behind a host's name give; 0 where none does."""
    entries: dict[str, str] = dict(_ENTRY.findall(rest))
    require_known(entries, (*_SLOTS, *_OTHERS), "a host", where)
    given = next(((k, v) for k, v in entries.items() if k in _SLOTS), None)
    if given is None:
        return 0
    name, value = given
    if not value.isdecimal() or int(value) == 0:
        raise InputError(f"{name}={value} is not a number of ranks", where=where, fix=f"write {name}=2")
    return int(value)


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
