"""What the front ends for other frameworks share: their errors told in one line, and names that stand once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["describe_error", "number_names"]


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
