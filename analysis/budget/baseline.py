"""Recorded totals of a program: what it costs is compared with them later. They are JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shardc.analysis.explain.explanation import Explanation
from shardc.hlo.errors import InputError
from shardc.hlo.files import write_atomically

__all__ = ["Baseline", "baseline_of", "read_baseline", "write_baseline"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """``totals`` by name; ``collectives`` are (kind, value, source line, bytes sent), equal ones added up."""

    program: str
    machine: str
    mesh: Mapping[str, int]
    totals: Mapping[str, float]
    collectives: tuple[tuple[str, str, str, float], ...]


def baseline_of(told: Explanation) -> Baseline:
    """What is to be recorded of an explained program; seconds only where a machine was named."""
    totals = {k: v for k, v in asdict(told.totals).items() if k != "collectives" and v is not None}
    sent: dict[tuple[str, str, str], float] = {}
    for c in told.collectives:
        key = (c.op, c.value, c.line)
        sent[key] = sent.get(key, 0.0) + c.wire_bytes
    rows = tuple(sorted((*key, sent[key]) for key in sent))
    return Baseline(told.program, told.machine, dict(told.mesh), totals, rows)


def read_baseline(path: Path, update: str) -> Baseline:
    """The recorded totals in ``path``. Raises `InputError` with ``update``, the way to record them."""
    try:
        facts: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict) or facts.get("version") != _VERSION:
            raise ValueError
        rows = tuple((str(op), str(value), str(line), float(sent)) for op, value, line, sent in facts["collectives"])
        totals = {str(k): float(v) for k, v in facts["totals"].items()}
        return Baseline(facts["program"], facts["machine"], facts["mesh"], totals, rows)
    except FileNotFoundError:
        raise InputError("no baseline is recorded", where=str(path), fix=update) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        what = f"the file is no baseline of version {_VERSION}, or has been changed"
        raise InputError(what, where=str(path), fix=update) from None
    except OSError as e:
        raise InputError(f"the baseline cannot be read: {e}", where=str(path), fix=update) from None


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write it, whole or not at all. Raises `InputError`."""
    data = json.dumps({"version": _VERSION, **asdict(baseline)}, indent=2) + "\n"
    try:
        write_atomically(path, data.encode("utf-8"))
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}", fix="name another file") from None
