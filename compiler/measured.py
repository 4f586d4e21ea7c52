"""Measured times of a program's kernels and collectives, as a file that the next compilation reads.

Plain JSON: ``{"format": 1, "programs": {KEY: {"name": ..., "seconds": {SITE: SECONDS}}}}``. The key is a digest of the
per-device program (`program_key`), a site is the name of a kernel or collective, its seconds are those of one
execution: of a collective, from its start until it was done.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardc.hlo.errors import InputError
from shardc.hlo.files import unwritable, write_atomically
from shardc.hlo.ir.ir import Module
from shardc.hlo.transforms.structure import Structure

__all__ = ["program_key", "read_measured", "read_measured_text", "write_measured"]

log = logging.getLogger("shardc")

_FORMAT = 1


def program_key(module: Module) -> str:
    """What times belong to: the per-device program as it comes into *lower*, on however many devices."""
    parts = (module.num_partitions, module.replica_count, Structure().computation(module.entry))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def write_measured(path: Path, key: str, name: str, seconds: Mapping[str, float]) -> None:
    """Add the times of one program to the file ``path``, in place of earlier ones; other programs in it stay."""
    programs = dict(_programs(path)) if path.exists() else {}
    programs[key] = {"name": name, "seconds": dict(sorted(seconds.items()))}
    text = json.dumps({"format": _FORMAT, "programs": programs}, indent=1, sort_keys=True)
    try:
        write_atomically(path, text.encode() + b"\n")
    except OSError as e:
        raise unwritable(path, e) from None


def read_measured(path: Path, key: str) -> Mapping[str, float]:
    """Seconds by site of the program ``key``; none, with a warning, where the file has times of others only.

    Raises `InputError` for a file that is missing, or holds something else.
    """
    programs = _programs(path)
    if key not in programs:
        names = ", ".join(sorted({str(p["name"]) for p in programs.values()})) or "none"
        text = (
            "%s has no times of this program (it has those of: %s); the cost model schedules the program. Times apply "
            "only for the same mesh, annotations and --machine, and with --plan propagated. Other plans differ between "
            "commands that run and commands that simulate"
        )
        log.warning(text, path, names)
        return {}
    seconds: Mapping[str, float] = programs[key]["seconds"]
    return seconds


def read_measured_text(path: Path) -> str:
    """All that the file ``path`` holds, to be read somewhere else. Raises as `read_measured`."""
    _programs(path)
    return path.read_text(encoding="utf-8")


def _programs(path: Path) -> Mapping[str, Any]:
    fix = "write such a file with shardc bench FILE --profile-out"
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != _FORMAT:
            raise InputError(
                f"the measured times have format {data['format']}, not {_FORMAT}", where=str(path), fix=fix
            )
        return {
            str(key): {"name": str(p["name"]), "seconds": {str(s): float(t) for s, t in p["seconds"].items()}}
            for key, p in data["programs"].items()
        }
    except OSError as e:
        raise InputError(f"cannot read the measured times: {e.strerror}", where=str(path), fix=fix) from None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InputError(f"not a file of measured times ({type(e).__name__}: {e})", where=str(path), fix=fix) from None
