"""What the front ends for other frameworks share: their errors told in one line, and names that stand once."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

_LIBRARY = sysconfig.get_path("stdlib")

__all__ = ["describe_error", "is_torch", "line_of_user", "number_names", "raised_at"]


def describe_error(error: Exception) -> str:
    """The class of another framework's error, and the first line of its message.

    Example: ``ValueError: no kernel`` for ``ValueError("no kernel\\nmore")``.
    """
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def number_names(names: Sequence[str], mark: str) -> tuple[str, ...]:
    """``names``, with ``mark`` and a number behind those that stood before.

    Example: ``("a", "b", "a#1")`` for ``["a", "b", "a"]`` and ``#``.
    """
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        out.append(f"{name}{mark}{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return tuple(out)


def is_torch(value: Any) -> bool:
    """Whether ``value`` is a module or an exported program of PyTorch's, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, (torch.nn.Module, torch.export.ExportedProgram))


def raised_at(error: Exception, own: Sequence[str]) -> str:
    """The innermost line that ``error`` passed, as ``file:line``, outside of folders ``own``, of this package's and of
    Python's library; empty where there is none."""
    folders = (*own, str(Path(__file__).parents[1]), "<")
    frames = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(folders)]
    frames = [f for f in frames if not f.filename.startswith(_LIBRARY) or "-packages" in f.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def line_of_user(frames: Iterable[Any]) -> tuple[str, int] | None:
    """File and line of the last of ``frames`` that lies in no installed package, not here, and not in Python's library;
    None where there is none."""
    folders = (str(Path(__file__).parents[1]), _LIBRARY, "<")
    found = [f for f in frames if not f.filename.startswith(folders) and "-packages" not in f.filename]
    return (found[-1].filename, found[-1].lineno) if found else None
