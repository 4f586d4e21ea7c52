"""Machines as data: what a device can do and the levels of links between devices.

A description is a TOML file (those that come along are in ``machines/``), every number with its source. Devices are
numbered so that neighbours share the innermost level: level 0 joins ``size`` consecutive devices, level 1 that many
of those groups, and so on; a size of 0 means as many as there are. Levels come innermost first::

    [[levels]]
    name = "nvlink"            # what its links are called
    kind = "switch"            # every pair talks at full rate; or "torus": links to neighbours along dimensions
    size = 8
    bandwidth = 450e9          # bytes per second in one direction: of a device, or of one link of a torus
    latency = 3e-6             # seconds per message, or per hop of a torus
    efficiency = 0.8           # the share of the bandwidth that long messages reach (1)
    start = 0                  # seconds that every collective takes besides (0)
    oversubscription = 1.0     # devices' bandwidth over that of the network behind them (1)

    [[levels]]                 # a torus has besides
    kind = "torus"
    size = 4096                # the most that one slice has
    slices = [[2, 2, 1], [2, 2, 2]]    # shapes that there are, in any orientation
    block = 4                  # and all those whose dimensions are multiples of this (0: none)
    wrap = "blocks"            # links around the ends: "all" (dimensions), "none", "blocks" (slices of whole blocks),
                               # or the size of a dimension that has them

A ``[host]`` part describes the link to the host's memory (`shardc.costs.machines.host_link`).
"""

from __future__ import annotations

import logging
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from shardc.costs.machines.device import Device, device_of, require_fields
from shardc.costs.machines.host_link import HostLink, host_link_of
from shardc.costs.machines.implausible import implausible
from shardc.costs.machines.level import Level, level_of
from shardc.costs.machines.measured import VIRTUAL, Measured, read_measured_table, this_machine_path
from shardc.hlo.errors import InputError
from shardc.hlo.files import near_files
from shardc.hlo.units import kind_text
from shardc.hlo.variables import read_variable

__all__ = [
    "GivenMapping",
    "Machine",
    "load_machine",
    "machine_file",
    "machine_names",
    "mapping_text",
    "placed_machine",
    "read_machine",
    "split_mapping",
]

#: Where mesh axes lie on a machine: text, an order of axes, or links by axis.
GivenMapping = str | Sequence[str] | Mapping[str, str]

_FOLDER = Path(__file__).parent
_THIS = ("this", "this-virtual")
_COUNTED = re.compile(r"(.+):(\d+(?:x\d+)*)")


@dataclass(frozen=True, slots=True)
class Machine:
    """Levels come innermost first. ``counts`` is how much of it is there, outermost first: of devices alone, or of
    slices and devices in each, or the dimensions of a slice; empty where nobody said it.

    ``measured`` is what calibrating a computer found; it then says what collectives and kernels cost. ``host`` is the
    link to the host's memory; None where nobody described it, and where devices are processors of the host.
    ``mapping`` says where mesh axes lie, as `shardc.costs.network.mapping.place` takes it; empty: the last innermost.
    """

    name: str
    device: Device
    levels: tuple[Level, ...]
    counts: tuple[int, ...] = ()
    measured: Measured | None = None
    host: HostLink | None = None
    mapping: str = ""

    @property
    def devices(self) -> int | None:
        """How many there are, where that is known."""
        return math.prod(self.counts) if self.counts else None

    @property
    def title(self) -> str:
        """The name with its counts, as `load_machine` takes it."""
        return self.name + (":" + "x".join(map(str, self.counts)) if self.counts else "")


def machine_names() -> tuple[str, ...]:
    """Machines that come along."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.toml")))


def load_machine(name: str | Path) -> Machine:
    """A machine by name, or from a TOML file; `InputError` for unknown names and bad descriptions.

    A count may follow: ``h100-dgx:64`` has 64 devices, ``tpu-v5p:2x64`` two slices of 64 chips, ``tpu-v5p:4x4x8`` one
    slice of that shape. ``this`` is the computer that was calibrated, its devices ranks, and ``this-virtual`` the same
    with virtual devices in one process. Where mesh axes lie may follow behind an @: ``h100-dgx:64@model,data``.
    """
    name, mapping = split_mapping(name)
    path, counted = machine_file(name)
    counts = tuple(int(n) for n in counted.split("x") if n)
    if any(n < 1 for n in counts):
        raise InputError(f"{str(name)!r} has no devices", fix="give positive counts, such as h100-dgx:64")
    machine = replace(read_machine(path)[0], counts=counts, mapping=mapping)
    if machine.measured is not None and (stale := machine.measured.stale()):
        _warn(f"{path}: {stale}")
    for text in implausible(machine.device, machine.levels, machine.host):
        _warn(f"{path}: {text}")
    if str(name) == "this-virtual" and machine.measured is not None:
        return replace(machine, name=str(name), measured=replace(machine.measured, where=VIRTUAL))
    return machine


def read_machine(path: Path) -> tuple[Machine, str]:
    """The machine that the file ``path`` describes, and the text; `InputError` for what is no description."""
    try:
        text = path.read_text(encoding="utf-8")
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(
            f"the machine description cannot be read: {error}",
            where=str(path),
            fix="write TOML: a table [device] with memory_bandwidth = 3e12 and more, and a table [[levels]] for each "
            "kind of links",
        ) from None
    return _machine(given, path), text


def mapping_text(mapping: GivenMapping | None) -> str:
    """Where mesh axes lie, as the command line has it; empty where nothing is said. Raises `InputError` for what is no
    mapping."""
    if mapping is None or isinstance(mapping, str):
        return mapping or ""
    if isinstance(mapping, Mapping):
        pairs = list(mapping.items())
        if all(isinstance(word, str) for pair in pairs for word in pair):
            return ",".join(f"{axis}={links}" for axis, links in pairs)
    elif isinstance(mapping, Sequence) and all(isinstance(axis, str) for axis in mapping):
        return ",".join(mapping)
    raise InputError(f"a mapping is {kind_text(mapping)}", where="mapping", fix=_MAPPING)


_MAPPING = 'give an order of axes, outermost first (["data", "model"]), or links by axis ({"data": "dcn", "fsdp": "x"})'


def placed_machine(machine: str | Path | None, mapping: GivenMapping | None) -> str | None:
    """What `load_machine` takes for a machine on which mesh axes lie as ``mapping`` says, an order or links by axis;
    the machine alone where it says nothing, or that the place is to be searched."""
    text = mapping_text(mapping)
    if not machine or text in ("", "search"):
        return None if machine is None else str(machine)
    return f"{split_mapping(machine)[0]}@{text}"


def split_mapping(name: str | Path) -> tuple[str, str]:
    """The machine of `placed_machine`, and the mapping; empty where there is none."""
    text = str(name)
    before, _, mapping = text.rpartition("@")
    return (before, mapping) if mapping and _find(text) is None and _find(before) is not None else (text, "")


def machine_file(name: str | Path) -> tuple[Path, str]:
    """The file that describes the machine called ``name``, and what follows the name: ``64`` of ``h100-dgx:64``.

    Raises `InputError` for unknown names.
    """
    found = _find(split_mapping(name)[0])
    if found is None:
        given = str(name) == read_variable("SHARDC_MACHINE")
        raise _no_machine(str(name), "environment variable SHARDC_MACHINE" if given else None)
    return found


def _find(name: str) -> tuple[Path, str] | None:
    path, counts = _path(name), ""
    if path is None and (counted := _COUNTED.fullmatch(name)) is not None:
        path, counts = _path(counted[1]), counted[2]
    return None if path is None else (path, counts)


def _no_machine(name: str, where: str | None) -> InputError:
    """The error for a name that means no machine, with the names that are near."""
    if os.path.isdir(name):  # noqa: PTH112 - Path.is_dir raises for long names
        return InputError(f"no machine {name!r}: it is a folder", where=where, fix="name a file in it")
    if name.endswith(".toml") or "/" in name:
        return InputError(f"no machine {name!r}: there is no such file", where=where, fix=near_files(Path(name)))
    known = machine_names()
    before, colon, count = name.partition(":")
    if colon and (before in known or before in _THIS):
        fix = f"write {before}:64, or {before}:2x64 for two groups of 64"
        return InputError(f"no machine {name!r}: {count!r} is not a number of devices", where=where, fix=fix)
    plain = name.partition(":")[0].lower()
    near = [k for k in known if plain and k.startswith(plain)] or get_close_matches(plain, known, n=2)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    known_text = ", ".join(known)
    return InputError(
        f"no machine {name!r}",
        where=where,
        fix=f"{meant}use one of {known_text}, this (the calibrated computer), or the path of a description",
    )


@cache
def _warn(text: str) -> None:
    """Once per process."""
    logging.getLogger("shardc").warning("%s", text)


def _path(name: str) -> Path | None:
    """The file that describes a machine; None for a name that means none."""
    if name in machine_names():
        return _FOLDER / f"{name}.toml"
    if name in _THIS:
        path = this_machine_path()
        if not path.is_file():
            raise InputError(
                f"no machine {name!r}: this computer has not been calibrated yet", fix="run shardc calibrate"
            )
        return path
    try:
        return Path(name) if Path(name).is_file() else None
    except (OSError, ValueError):  # longer than names may be, or not a name at all
        return None


def _level_title(level: Any, number: int) -> str:
    """How messages call the ``number``-th table [[levels]]: by its name if it has one."""
    name = level.get("name") if isinstance(level, Mapping) else None
    return f"level {name}" if isinstance(name, str) and name else f"level number {number}"


def _machine(given: Mapping[str, Any], path: Path) -> Machine:
    require_fields(given, Machine, "a machine", str(path))
    device = given.get("device")
    levels = given.get("levels")
    if not isinstance(device, dict) or not isinstance(levels, list) or not levels:
        raise InputError(
            "a machine needs one [device] and at least one [[levels]]", where=str(path), fix="write both tables"
        )
    made = tuple(level_of(level, f"{path}, {_level_title(level, n)}") for n, level in enumerate(levels, 1))
    if any(level.size == 0 for level in made[:-1]):
        raise InputError(
            "only the outermost level may have any size (0)", where=str(path), fix="give the others their sizes"
        )
    for n, level in enumerate(made):
        if level.name in {other.name for other in made[:n]}:
            raise InputError(f"two levels are called {level.name!r}", where=str(path), fix="name each level once")
    measured = read_measured_table(given["measured"], str(path)) if "measured" in given else None
    name, host = str(given.get("name", path.stem)), given.get("host")
    link = None if host is None else host_link_of(host, f"{path}, host")
    return Machine(name, device_of(device, f"{path}, device"), made, measured=measured, host=link)
