"""The environment variables of shardc: each has a kind, which says what it takes, and is checked like an option."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import InputError

__all__ = ["OF_OTHERS", "VARIABLES", "VariableKind", "read_variable", "warn_of_unknown"]

log = logging.getLogger("shardc")

_SWITCH: Mapping[str, bool] = MappingProxyType(
    {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}
)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_KEY = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class VariableKind:
    """``read`` makes a value of a text, and raises ValueError where it is not what ``takes`` says."""

    takes: str
    read: Callable[[str], Any]


def read_variable(name: str, environ: Mapping[str, str] = os.environ) -> Any:
    """The value of a variable, None where it is unset or empty; `InputError` where it is not what it takes."""
    text = environ.get(name, "")
    if not text:
        return None
    kind = VARIABLES[name]
    try:
        return kind.read(text)
    except (ValueError, OSError, re.error) as e:
        why = f" ({e})" if str(e) else ""
        raise InputError(
            f"{name}{'' if name == 'SHARDC_TOKEN' else f'={text!r}'} is not {kind.takes}{why}",
            where=f"environment variable {name}",
            fix=f"set {name} to {kind.takes}, or leave it out",
        ) from None


def _number(low: float, high: float) -> VariableKind:
    def read(text: str) -> float:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not low <= value <= high:
            raise ValueError
        return value

    return VariableKind(f"a number from {low:g} to {high:g}", read)


def _whole(low: int, high: int) -> VariableKind:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise ValueError
        return int(text)

    return VariableKind(f"a whole number from {low} to {high}", read)


def _word(*words: str) -> VariableKind:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return VariableKind("one of " + ", ".join(words), read)


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError
    return _SWITCH[text.lower()]


def _pattern(text: str) -> str:
    re.compile(text)
    return text


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise ValueError("there is no such file")
    return Path(text)


def _folder(text: str) -> Path:
    path = Path(text)
    if file := next((p for p in (path, *path.parents) if p.exists() and not p.is_dir()), None):
        raise ValueError("there is a file of this name" if file == path else f"{file} is a file")
    return path


def _one_line(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError
    return text


def _contents(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise ValueError(f"{path} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} cannot be read: it is not text") from None


def _first_line(text: str) -> str:
    return next(iter(_contents(Path(text)).split("\n")), "").strip()


def _key(text: str) -> str:
    """In hexadecimal: the variable itself, or the contents of the file that it names."""
    found = text if _KEY.fullmatch(text) else _contents(Path(text)).strip()
    if not _KEY.fullmatch(found):
        raise ValueError(f"{text} holds no key")
    return found.lower()


_SWITCHED = VariableKind("one of 1, on, true, yes, 0, off, false, no", _switch)
_LINE = VariableKind("one line of text without spaces around it", _one_line)

#: What each variable takes. `shardc mpiexec` sets the last ones for its ranks, and a rank for its children.
VARIABLES: Mapping[str, VariableKind] = MappingProxyType(
    {
        "SHARDC_DUMP_TO": VariableKind("a folder, which is created if missing", _folder),
        "SHARDC_REPORT_TO": VariableKind("a folder, which is created if missing", _folder),
        "SHARDC_DUMP_PASSES": VariableKind("a regular expression", _pattern),
        "SHARDC_CACHE_DIR": VariableKind("a folder", Path),
        "SHARDC_CACHE_SIZE": _number(0, 1e9),
        "SHARDC_CHECK": _SWITCHED,
        "SHARDC_TIMEOUT": _number(0, 1e8),
        "SHARDC_NUM_THREADS": _whole(0, 4096),
        "SHARDC_NUM_DEVICES": _whole(1, 4096),
        "SHARDC_TUNE": _number(0, 1e8),
        "SHARDC_OVERLAP": _word("never", "auto", "always"),
        "SHARDC_OVERLAP_MEMORY": _number(1, 1e6),
        "SHARDC_MACHINE": _LINE,
        "SHARDC_PROFILE": VariableKind("a file of measured times", _file),
        "SHARDC_SHARED_MEMORY": _SWITCHED,
        "SHARDC_TRANSFER_THREAD": _SWITCHED,
        "SHARDC_TF32": _SWITCHED,
        "SHARDC_DETERMINISTIC": _SWITCHED,
        "SHARDC_SERVER": _LINE,
        "SHARDC_TOKEN": _LINE,
        "SHARDC_TOKEN_FILE": VariableKind("a file whose first line is the token", _first_line),
        "SHARDC_SERVER_KEY": VariableKind("64 hexadecimal digits, or a file that holds them", _key),
        "SHARDC_BIND": _word("auto", "none", "core", "numa"),
        "SHARDC_RANKS": _whole(1, 1 << 30),
        "SHARDC_CRASH_REPORT": _LINE,
        "SHARDC_RANK_PROCESS": _LINE,
    }
)

#: What the tests, the benchmarks, `make` and the script of examples/slurm read.
OF_OTHERS = frozenset(
    {
        "SHARDC_CONFORMANCE",
        "SHARDC_TEST_MPI",
        "SHARDC_TEST_CPU",
        "SHARDC_OFFLINE",
        "SHARDC_FULL_RECORD",
        "SHARDC_BENCH_MPI",
        "SHARDC_BENCH_RIVALS",
        "SHARDC_SRUN_MPI",
    }
)


@cache
def warn_of_unknown() -> None:
    """Warn, once in a process, of variables that only look like one of shardc, and of one that needs another.

    Processes that another one of shardc started leave it to that one.
    """
    if os.environ.get("SHARDC_RANKS") or multiprocessing.parent_process() is not None:
        return
    for name in sorted(os.environ):
        if name.startswith("SHARDC_") and name not in VARIABLES and name not in OF_OTHERS:
            near = get_close_matches(name, VARIABLES, n=1, cutoff=0.8)
            fix = f"did you mean {near[0]}?" if near else "the page Environment variables lists those that are read"
            log.warning("the environment variable %s is unknown to shardc, and ignored: %s", name, fix)
    if os.environ.get("SHARDC_DUMP_PASSES") and not os.environ.get("SHARDC_DUMP_TO"):
        log.warning("SHARDC_DUMP_PASSES writes nothing without SHARDC_DUMP_TO: set that to a folder")
