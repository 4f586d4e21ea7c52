"""The English of pages: no sentence is longer than 25 words, and no word is a known misspelling."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prose import LIMIT, pages, sentences, words
from typer.main import get_command

import shardc
from shardc.cli.app import app

#: Folders whose pages, docstrings and messages are checked for spelling.
SPELLED = ("README.md", "CONTRIBUTING.md", "docs", "shardc/__init__.py", "shardc/cli", "shardc/stages", "shardc/demo")
ROOMS = ("native", "hlo", "sharding", "costs", "collectives", "partitioner", "compiler", "launcher", "frontends")


def test_no_sentence_is_too_long(repository: Path) -> None:
    read = [sentence for page, text in pages(repository) for sentence in sentences(page, text)]
    assert len(read) > 2000
    assert [f"{s.page}:{s.line}: {s.text}" for s in read if words(s.text) > LIMIT] == []


def docstrings() -> Iterator[tuple[str, str]]:
    """Of all public names and what their classes have, and the help of all commands and options."""
    for name in shardc.__all__:
        value = getattr(shardc, name)
        yield name, inspect.getdoc(value) or ""
        inner = [n for n in vars(value) if not n.startswith("_")] if inspect.isclass(value) else []
        inner = [n for n in inner if not isinstance(getattr(value, n), int | str | float | tuple)]
        yield from ((f"{name}.{n}", inspect.getdoc(getattr(value, n)) or "") for n in inner)
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        yield f"shardc {name}", command.help or ""
        yield from ((f"shardc {name} {p.name}", getattr(p, "help", None) or "") for p in command.params)


def test_no_sentence_of_the_reference_is_too_long() -> None:
    read = []
    for name, text in docstrings():
        prose = re.sub(r"^ *(>>>|\.\.\.).*$|::\n(\n|    .*\n?)+", ".\n", text, flags=re.MULTILINE)
        read += list(sentences(name, prose))
    assert len(read) > 500
    assert sorted({f"{s.page}: {s.text}" for s in read if words(s.text) > LIMIT}) == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("One. Two? (Three.) **Four!** Five", ["One.", "Two?", "(Three.)", "Four!", "Five"]),
        ("A [link to\nit](there.md#is) holds `code. Code`, e.g. here.", ["A link to it holds `x`, e.g. here."]),
        ("# Title\nText that\ngoes on.\n* item one\n  of two lines\n* two", ["Title", "Text that goes on."]),
        ("Before:\n\n```python\nnot. read\n```\n| a. b | c |\n\nAfter.", ["Before:", "After."]),
        ("<!-- table x -->\nMade. By a program.\n<!-- end -->\nBy hand.", ["By hand."]),
    ],
)
def test_sentences_are_read_as_people_do(text: str, read: list[str]) -> None:
    assert [s.text for s in sentences("page", text)][: len(read)] == read


def test_items_of_a_list_are_read_apart() -> None:
    found = list(sentences("page", "* item one\n  of two lines\n* two\n\n1. three"))
    assert [(s.line, s.text) for s in found] == [(1, "item one of two lines"), (3, "two"), (5, "three")]


def test_words_are_spelled_right(repository: Path) -> None:
    """codespell reads its list and its exceptions (pyproject.toml) from this machine; no network is asked."""
    where = [*SPELLED, *ROOMS, "analysis", "service"]
    command = [sys.executable, "-m", "codespell_lib", "--skip", "*.png,*.svg", *where]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
