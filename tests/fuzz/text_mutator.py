"""Mutates program texts by seed: tokens, numbers, lines and characters change, move, repeat or go missing."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["corpus", "mutate", "shrink"]

_TOKEN = re.compile(r"[%@#!]?[A-Za-z_][\w.\-]*|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\s+|.", re.DOTALL)
_NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "1000",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "-9223372036854775808",
    "9223372036854775807",
    "18446744073709551616",
    "1e400",
    "nan",
    "-inf",
    "0.5",
    "9" * 400,
)
_WORDS = (
    "f32",
    "bf16",
    "s4",
    "pred",
    "c64",
    "token",
    "f8e4m3fn",
    "add",
    "dot",
    "while",
    "tuple",
    "parameter",
    "constant",
    "sharding",
    "devices",
    "replicated",
    "manual",
    "maximal",
    "ROOT",
    "ENTRY",
    "HloModule",
    "true",
    "{}",
    "()",
    "[]",
    "<=",
    "->",
    "T(1,0)",
    "last_tile_dim_replicate",
    "metadata",
    "é",
    "\x00",
    "\ud7ff",
    "\u2028",
    '"',
    "'",
    "/*",
    "*/",
    "//",
    "\\",
)
_OPEN = "([{<"


def corpus(folder: Path, pattern: str, limit: int = 20_000) -> list[Path]:
    """The texts that are not too long, in a fixed order."""
    return sorted(p for p in folder.rglob(pattern) if p.stat().st_size <= limit)


def mutate(text: str, others: Sequence[str], seed: int) -> str:
    """A text with one to six mutations; ``others`` are texts to take pieces from."""
    r = random.Random(seed)
    for _ in range(r.choice([1, 1, 1, 2, 3, 6])):
        text = r.choice(_MUTATIONS)(r, text, others)
    return text


def shrink(text: str, fails: Callable[[str], bool], seconds: float = 30) -> str:
    """A shorter text for which ``fails`` still holds: without lines, then without tokens, in ever smaller parts."""
    end = time.monotonic() + seconds
    for split, glue in ((lambda t: t.split("\n"), "\n"), (_tokens, "")):
        pieces = split(text)
        size = max(1, len(pieces) // 2)
        while size and time.monotonic() < end:
            k = 0
            while k < len(pieces) and time.monotonic() < end:
                without = pieces[:k] + pieces[k + size :]
                if fails(glue.join(without)):
                    pieces = without
                else:
                    k += size
            size //= 2
        text = glue.join(pieces)
    return text


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _place(r: random.Random, tokens: Sequence[str], fits: Callable[[str], bool]) -> int | None:
    found = [k for k, t in enumerate(tokens) if fits(t)]
    return r.choice(found) if found else None


def _number(r: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _tokens(text)
    k = _place(r, tokens, lambda t: t.lstrip("-")[:1].isdigit())
    if k is not None:
        near = str(int(tokens[k]) + r.choice([-1, 1])) if tokens[k].isdigit() and len(tokens[k]) < 30 else "0"
        tokens[k] = r.choice([*_NUMBERS, near, near, near, near])
    return "".join(tokens)


def _word(r: random.Random, text: str, others: Sequence[str]) -> str:
    """A word becomes another word of the text, or of the language."""
    tokens = _tokens(text)
    k = _place(r, tokens, lambda t: t[:1].isalpha() or t[:1] in "%@#!")
    if k is not None:
        words = [t for t in tokens if t[:1].isalpha() or t[:1] in "%@#!"]
        tokens[k] = r.choice(words) if r.random() < 0.7 else r.choice(_WORDS)
    return "".join(tokens)


def _drop(r: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _tokens(text)
    k = r.randrange(len(tokens) + 1)
    del tokens[k : k + r.choice([1, 1, 1, 2, 5, 20])]
    return "".join(tokens)


def _insert(r: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _tokens(text)
    tokens.insert(r.randrange(len(tokens) + 1), r.choice(_WORDS) if r.random() < 0.5 else r.choice([*tokens, " "]))
    return "".join(tokens)


def _swap(r: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _tokens(text)
    if len(tokens) >= 2:
        a, b = r.randrange(len(tokens)), r.randrange(len(tokens))
        tokens[a], tokens[b] = tokens[b], tokens[a]
    return "".join(tokens)


def _lines(r: random.Random, text: str, others: Sequence[str]) -> str:
    """A line goes missing, moves, repeats, or comes from another text."""
    lines = text.split("\n")
    k = r.randrange(len(lines))
    kind = r.randrange(4)
    line = lines[k] if kind else r.choice(r.choice(others).split("\n"))
    if kind in (1, 2):
        del lines[k]
    if kind != 1:
        lines.insert(r.randrange(len(lines) + 1), line)
    return "\n".join(lines)


def _cut(r: random.Random, text: str, others: Sequence[str]) -> str:
    k = r.randrange(len(text) + 1)
    return text[:k] if r.random() < 0.7 else text[k:]


def _character(r: random.Random, text: str, others: Sequence[str]) -> str:
    k = r.randrange(len(text) + 1)
    return text[:k] + chr(r.choice([r.randrange(128), r.randrange(0xD7FF), 0, 10])) + text[k + r.randrange(2) :]


def _repeat(r: random.Random, text: str, others: Sequence[str]) -> str:
    """A token many times over: brackets without an end, and numbers of many digits."""
    tokens = _tokens(text)
    k = _place(r, tokens, lambda t: not t.isspace() and (t in _OPEN or r.random() < 0.2))
    if k is not None:
        tokens[k] = tokens[k] * r.choice([2, 3, 100, 3000])
    return "".join(tokens)


def _clause(r: random.Random, text: str, others: Sequence[str]) -> str:
    """What stands between two commas goes missing, or repeats, or comes from another text."""
    clauses = text.split(",")
    k = r.randrange(len(clauses))
    kind = r.randrange(3)
    if kind == 0:
        del clauses[k]
    elif kind == 1:
        clauses.insert(r.randrange(len(clauses) + 1), clauses[k])
    else:
        clauses[k] = r.choice(r.choice(others).split(","))
    return ",".join(clauses)


_MUTATIONS = (
    _number,
    _number,
    _number,
    _word,
    _word,
    _word,
    _drop,
    _insert,
    _swap,
    _lines,
    _cut,
    _character,
    _repeat,
    _clause,
    _clause,
)
