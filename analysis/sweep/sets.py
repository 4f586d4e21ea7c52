"""Named sets of annotations to choose from, and what the axes of their meshes may be: a TOML file.

::

    [axes]                      # sizes to try: 4, "1..64", "8..", [1, 2, 4]; all others: any
    model = "1..8"

    [annotate]                  # in every set
    tokens = "data"

    [sets.megatron.annotate]    # names and globs as everywhere
    "params['layers']['up']" = "None,None,model"

    [sets.fsdp.annotate]
    "params*" = "data"

    [sets.fsdp.axes]            # narrower for this set
    model = 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardc.analysis.sweep.meshes import Limit, parse_limit
from shardc.hlo.errors import AnnotationError, InputError, Location
from shardc.sharding.notations.annotate import read_toml, spec_text

__all__ = ["AnnotationSet", "SetFile", "join_files", "need_own_names", "read_sets", "sets_of", "with_auto"]

_TABLES = ("annotate", "axes", "mesh", "sets")


@dataclass(frozen=True)
class AnnotationSet:
    """Annotations (specs by name or glob) that are tried together, and the sizes that axes may have then. With ``auto``
    more are found for each mesh."""

    name: str
    specs: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)
    auto: bool = False


@dataclass(frozen=True)
class SetFile:
    """The sets of a file; ``axes`` are the mesh's names, for a program that has none, ``common`` the annotations of
    every set."""

    sets: tuple[AnnotationSet, ...]
    axes: tuple[str, ...] = ()
    common: Mapping[str, Any] = field(default_factory=dict)


def read_sets(path: str | Path) -> SetFile:
    """The sets in a TOML file; without ``[sets]`` one, named like the file.

    Raises `InputError` for a file that cannot be read or is not TOML, `AnnotationError` for wrong contents.
    """
    where = Location(str(path))
    data = read_toml(path)
    _known(data, _TABLES, where)
    specs, limits = _read_specs(data.get("annotate", {}), where), _limits(data.get("axes", {}), where)
    mesh, sets = _table(data.get("mesh", {}), "mesh", where), _table(data.get("sets", {}), "sets", where)
    found = [_set(name, table, specs, limits, where) for name, table in sets.items()]
    axes = tuple(dict.fromkeys([*mesh, *limits, *(axis for s in found for axis in s.limits)]))
    return SetFile(tuple(found) or (AnnotationSet(Path(path).stem, specs, limits),), axes, specs)


def _set(
    name: str, table: object, specs: Mapping[str, Any], limits: Mapping[str, Limit], where: Location
) -> AnnotationSet:
    own = _table(table, f"sets.{name}", where)
    _known(own, ("annotate", "axes"), where, f"sets.{name}.")
    more = _read_specs(own.get("annotate", {}), where, f"sets.{name}.")
    return AnnotationSet(name, {**specs, **more}, {**limits, **_limits(own.get("axes", {}), where, f"sets.{name}.")})


def _known(table: Mapping[str, Any], names: Sequence[str], where: Location, prefix: str = "") -> None:
    unknown = sorted(set(table) - set(names))
    if unknown:
        fix = f"use the tables {', '.join(f'[{prefix}{n}]' for n in names)}"
        raise AnnotationError(f"unknown table {prefix}{unknown[0]}", where=where, fix=fix)


def _table(value: object, name: str, where: Location) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AnnotationError(f"{name} must be a table", where=where, fix=f"write [{name}]")
    return value


def _read_specs(value: object, where: Location, prefix: str = "") -> dict[str, str]:
    table = _table(value, f"{prefix}annotate", where)
    return {name: spec_text(name, spec, where) for name, spec in table.items()}


def _limits(value: object, where: Location, prefix: str = "") -> dict[str, Limit]:
    table = _table(value, f"{prefix}axes", where)
    return {axis: parse_limit(size, f"{where}, {prefix}axes.{axis}") for axis, size in table.items()}


def sets_of(given: object) -> SetFile:
    """Sets from Python: the path of a file, or ``{name: {value: spec}}``; None is one set without annotations."""
    if given is None:
        return SetFile((AnnotationSet("as given"),))
    if isinstance(given, str | Path):
        return read_sets(given)
    if not isinstance(given, Mapping) or not all(isinstance(v, Mapping) for v in given.values()) or not given:
        raise InputError(
            "sets must map each set's name to its annotations",
            where=repr(given)[:80],
            fix='sets={"fsdp": {"w1": P("data")}, ...}',
        )
    return SetFile(tuple(AnnotationSet(str(name), dict(specs)) for name, specs in given.items()))


def with_auto(found: SetFile) -> SetFile:
    """The sets, and one more whose annotations are found beside those that all have; that alone where the others
    annotate nothing. Raises `AnnotationError` where another one has its name."""
    others = tuple(s for s in found.sets if s.specs or s.limits)
    need_own_names([*(s.name for s in others), "auto"], "--auto")
    return replace(found, sets=(*others, AnnotationSet("auto", found.common, auto=True)))


def join_files(files: Sequence[SetFile]) -> SetFile:
    """Several files' sets together; `AnnotationError` where two have the same name."""
    need_own_names([s.name for f in files for s in f.sets], "--over")
    axes = tuple(dict.fromkeys(axis for f in files for axis in f.axes))
    common = {n: x for n, x in files[0].common.items() if all(f.common.get(n) == x for f in files)} if files else {}
    return SetFile(tuple(s for f in files for s in f.sets) or sets_of(None).sets, axes, common)


def need_own_names(names: Sequence[str], where: str) -> None:
    """Raise `AnnotationError` where two sets have the same name."""
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise AnnotationError(f"two annotation sets are called {twice!r}", where=where, fix="rename one of them")
