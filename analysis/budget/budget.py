"""What a budget is: collectives that a program must not have, limits of its totals, tolerances over a baseline.

A budget file is TOML; every key may be left out::

    machine = "h100-dgx"          # links and seconds are those of this machine
    mapping = "data=infiniband"   # where mesh axes lie on its links
    baseline = "step.json"        # recorded totals, beside this file

    [limits]                      # of one device in one step
    wire_bytes = "5 MiB"          # bytes sent
    peak_bytes = "20 MiB"         # memory
    flops = 3e9                   # arithmetic operations
    seconds = 100e-6              # modelled time; needs a machine

    [tolerance]                   # how much more than the baseline is allowed, as a share (0.01)
    seconds = 0.05

    [[forbid]]                    # a collective for which all of this holds
    op = "all-gather"             # its kind; * stands for anything
    axis = "model"                # a mesh axis that it goes over
    link = "infiniband"           # a kind of links of the machine that it goes over
    above = "1 MiB"               # its result on one device is larger than this
    except = ["model.py:*"]       # lines of the source where it is allowed
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardc.costs.machines.machine import placed_machine
from shardc.hlo.errors import InputError
from shardc.hlo.files import near_files
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.known_keys import require_known
from shardc.hlo.units import parse_bytes

__all__ = ["TOTALS", "Forbidden", "ProgramBudget", "budget_of", "read_budget"]

#: The totals that limits, tolerances and baselines have, in the order in which they are told.
TOTALS = ("wire_bytes", "peak_bytes", "flops", "seconds")
_TOLERANCE = 0.01
_KEYS = ("machine", "mapping", "baseline", "limits", "tolerance", "forbid")
_RULE = ("op", "axis", "link", "above", "except")


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Collectives that must not be there: those of this kind, axis, kind of links and size (bytes), save on lines.

    ``op`` and ``allowed`` are globs (``model.py:*``); an empty text stands for anything.
    """

    op: str = "*"
    axis: str = ""
    link: str = ""
    above: float = -1.0
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramBudget:
    """What a program may cost. ``limits`` and ``tolerance`` are by the names of `TOTALS`.

    ``baseline`` is the file of recorded totals, or None. `budget_of` makes one from the keys of a budget file, which
    is ``place`` in errors.
    """

    machine: str = ""
    mapping: str = ""
    baseline: Path | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    forbid: tuple[Forbidden, ...] = ()
    place: str = "budget"

    @property
    def placed_machine(self) -> str | None:
        """The machine, with where mesh axes lie on it; None where the budget names none."""
        return placed_machine(self.machine or None, self.mapping)

    def allowed_over(self, total: str) -> float:
        """The share by which a total may exceed the baseline."""
        return self.tolerance.get(total, _TOLERANCE)


def read_budget(path: str | Path) -> ProgramBudget:
    """The budget in a TOML file. Raises `InputError`, with the key, where it is missing or says nothing sensible."""
    path = Path(path)
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no budget file {path}", where=str(path), fix=near_files(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise InputError(f"the budget cannot be read: {e}", where=str(path), fix="write a file in TOML") from None
    return budget_of(facts, path)


def budget_of(facts: Mapping[str, Any], path: Path | None = None) -> ProgramBudget:
    """A budget from the keys of a budget file; files that it names lie beside ``path``. Raises `InputError`."""
    where = "budget" if path is None else str(path)
    require_known(facts, _KEYS, "a budget", where)
    texts = {key: _text(facts.get(key, ""), f"{where}: {key}") for key in ("machine", "mapping", "baseline")}
    here = Path() if path is None else path.parent
    rules = facts.get("forbid", [])
    if not isinstance(rules, list) or not all(isinstance(r, Mapping) for r in rules):
        raise InputError("forbid is not a list of tables", where=where, fix="write [[forbid]]")
    budget = ProgramBudget(
        machine=texts["machine"],
        mapping=texts["mapping"],
        baseline=here / texts["baseline"] if texts["baseline"] else None,
        limits=_figures(facts.get("limits", {}), f"{where}: limits", _figure),
        tolerance=_figures(facts.get("tolerance", {}), f"{where}: tolerance", _share),
        forbid=tuple(_rule(r, f"{where}: forbid {n}") for n, r in enumerate(rules, 1)),
        place=where,
    )
    needs = [r.link for r in budget.forbid if r.link]
    needs += ["seconds"] * ("seconds" in budget.limits) + ["mapping"] * bool(budget.mapping)
    if needs and not budget.machine:
        raise InputError(f"{needs[0]!r} needs a machine", where=where, fix='add machine = "h100-dgx", or another one')
    return budget


def _rule(facts: Mapping[str, Any], where: str) -> Forbidden:
    require_known(facts, _RULE, "a rule", where)
    op, axis, link = (_text(facts.get(key, ""), f"{where}: {key}") for key in ("op", "axis", "link"))
    if op and "*" not in op and op not in COLLECTIVES:
        kinds = sorted(COLLECTIVES)
        raise InputError(f"unknown collective {op!r}", where=where, fix=f"use one of {', '.join(kinds)}, or *")
    lines = facts.get("except", [])
    lines = [lines] if isinstance(lines, str) else lines
    if not isinstance(lines, list | tuple):
        raise InputError("except is not a list of lines", where=where, fix='write except = ["model.py:17"]')
    above = _figure(facts["above"], where, "above") if "above" in facts else -1.0
    return Forbidden(op or "*", axis, link, above, tuple(_text(line, f"{where}: except") for line in lines))


def _figures(table: Any, where: str, read: Callable[[Any, str, str], float]) -> dict[str, float]:
    """What ``read`` makes of the values of a table by the names of totals."""
    if not isinstance(table, Mapping):
        raise InputError("the entry is not a table of totals", where=where, fix=f"give {', '.join(TOTALS)}")
    require_known(table, TOTALS, "this table of totals", where)
    return {name: read(value, where, name) for name, value in table.items()}


def _share(value: Any, table: str, name: str) -> float:
    """A share by which a total may exceed another."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        what = f"{value!r} is not a share of 0 or more"
        raise InputError(what, where=f"{table}: {name}", fix=f"write {name} = 0.05 for 5 % more")
    return float(value)


def _figure(value: Any, table: str, name: str) -> float:
    """A number of 0 or more, or text such as ``5 MiB`` where ``name`` is no number of seconds."""
    where = f"{table}: {name}"
    if isinstance(value, str) and name == "seconds":
        raise InputError(f"{value!r} is not a number of seconds", where=where, fix="write seconds = 20e-6")
    if isinstance(value, str):
        return parse_bytes(value, where, f'{name} = "40 GiB", "80 GB"') or 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(f"{value!r} is not a number of 0 or more", where=where, fix="write 4096, 1e-3 or '4 KiB'")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str | Path):
        raise InputError(f"{value!r} is not a string", where=where, fix="write it in quotes")
    return str(value)
