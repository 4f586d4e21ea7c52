"""Markdown tables, and documents that show them between markers: ``<!-- table NAME -->`` to ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["insert", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(r) + " |" for r in rows)]) + "\n"


def insert(path: Path, sections: Mapping[str, str]) -> list[str]:
    """Replace what stands between the markers of ``sections`` in a document; the names that were found.

    A marker without a section keeps its text, so that a part of the benchmarks can be run alone.
    """
    found: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        if name not in sections:
            return match[0]
        found.append(name)
        return f"<!-- table {name} -->\n{sections[name].strip()}\n<!-- end -->"

    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<!-- table ([\w-]+) -->\n.*?<!-- end -->", replaced, text, flags=re.DOTALL)
    path.write_text(text, encoding="utf-8")
    return found
