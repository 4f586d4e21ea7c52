"""The prose of documentation pages: sentences with the line they begin on, without code, tables and shown output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIMIT", "Sentence", "pages", "sentences", "words"]

#: Words that a sentence may have.
LIMIT = 25
_FENCE = re.compile(r"^ *(`{3,}|~{3,})")
_GENERATED = re.compile(r"<!-- (?:table [\w -]+|full run|generated.*?) -->.*?<!-- end -->", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ITEM = re.compile(r"^ *(?:[*+-]|\d+\.) +")
_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?][)"']))[ ]+""")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|vs|etc|Fig|No)\.$")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a page, as it reads once links and code marks are words."""

    page: str
    line: int
    text: str


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Name and Markdown of README, CONTRIBUTING and all pages under docs; of notebooks, their Markdown cells."""
    for path in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
    for path in sorted((root / "docs").rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        yield path.relative_to(root).as_posix(), "\n\n".join(prose)


def blank(match: re.Match[str]) -> str:
    """As many lines as there were, with nothing on them: line numbers stay."""
    return "\n" * match[0].count("\n")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items of lists and titles with their first line; code, tables and generated parts are left out."""
    text = _COMMENT.sub(blank, _GENERATED.sub(blank, text))
    start, fence = 0, ""
    held: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and line.strip() == fence else fence
            continue
        plain = line.strip()
        apart = mark or not plain or plain.startswith(("|", "#", "![", "> |")) or _ITEM.match(line)
        if apart and held:
            yield start, " ".join(held)
            held = []
        if mark:
            fence = mark[1]
        elif plain.startswith("#"):
            yield number, plain.lstrip("# ")
        elif plain and not plain.startswith(("|", "![")):
            start = start if held else number
            held.append(_ITEM.sub("", plain))


def plain(text: str) -> str:
    """Links are their words, code is one word, marks of emphasis are nothing."""
    text = re.sub(r"``.+?``|`[^`]+`", "`x`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\{[a-z:]+\}(?=`)|\*\*|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)|https?://\S+", "", text)


def sentences(page: str, text: str) -> Iterator[Sentence]:
    """Sentences end at a full stop, a question mark or an exclamation mark in front of a space."""
    for line, paragraph in paragraphs(text):
        held = ""
        for part in _END.split(plain(paragraph)):
            held = f"{held} {part}".strip()
            if held and not _ABBREVIATION.search(held):
                yield Sentence(page, line, held)
                held = ""
        if held:
            yield Sentence(page, line, held)


def words(text: str) -> int:
    """Words: runs with a letter or a digit in them; a span of code is one."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())
