"""Names of values: exact, then by glob; near names for error messages."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable

__all__ = ["has_character_class", "is_glob", "match_names", "near_names", "pattern_of"]


def is_glob(pattern: str) -> bool:
    """Whether a name may stand for several."""
    return any(c in pattern for c in "*?")


def match_names(pattern: str, names: Iterable[str]) -> list[str]:
    """The name that equals ``pattern``, else all that match it as a glob.

    ``*`` and ``?`` are wild; brackets are not, because names such as ``st['p']`` have them.
    """
    known = list(dict.fromkeys(names))
    if pattern in known:
        return [pattern]
    if not is_glob(pattern):
        return []
    glob = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
    return [n for n in known if glob.match(n)]


def has_character_class(pattern: str, names: Iterable[str]) -> bool:
    """Whether ``pattern`` would match a name if its brackets, but for those of keys and indices, stood for one of the
    characters in them, as a shell has it."""
    glob = re.compile(fnmatch.translate(re.sub(r"\[(?=['\"\[]|\d+\](?!\]))", "[[]", pattern)))
    return any(glob.match(n) for n in names)


def near_names(name: str, names: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """``did you mean a, b?`` or a list of some names there are: of ``listed``, where not all are to be."""
    known = [n for n in dict.fromkeys(names) if n]
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    if close:
        return "did you mean " + ", ".join(close) + "?"
    known = known if listed is None else list(dict.fromkeys(listed))
    shown = ", ".join(known[:10])
    return f"the names are {shown}" + (f" and {len(known) - 10} more" if len(known) > 10 else "") if known else ""


def pattern_of(name: str) -> str:
    """A name without its numbers: equal for what equal layers call alike."""
    return re.sub(r"\d+", "#", name)
