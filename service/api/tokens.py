"""Bearer tokens: a file with one per line, which holds only their hashes.

A line is ``NAME sha256:HEX``; a name is for people. A line ``NAME TOKEN`` or ``TOKEN`` that somebody wrote by hand is
replaced by its hash when the server reads it. Tokens are long and random, so that one round of SHA-256 is enough.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from shardc.hlo.errors import EnvironmentProblem, InputError, ShardcError
from shardc.hlo.files import replacing

__all__ = ["TokenFile", "Tokens", "open_tokens"]

_HASHED = re.compile(r"sha256:([0-9a-f]{64})")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # what RFC 6750 lets a token consist of
_SHORTEST = 16


@dataclass(frozen=True, slots=True)
class Tokens:
    """Hashes (SHA-256, hexadecimal) by name."""

    hashes: Mapping[str, str]

    def find(self, token: str) -> str | None:
        """The name of ``token``; None when there is no such token. Takes as long for every token."""
        presented = sha256(token.encode()).hexdigest()
        found = None
        for name, digest in self.hashes.items():
            if hmac.compare_digest(presented, digest):
                found = name
        return found


class TokenFile:
    """The tokens of a file as it is now: who adds a line or takes one away need not start the server again.

    While it is `watched`, a change counts within a second, whether or not somebody asks. A file that has become
    unreadable, or has no token any more, changes nothing; ``say`` hears of it once.
    """

    def __init__(self, path: Path, tokens: Tokens, say: Callable[[str], None]) -> None:
        self._path, self._tokens, self._say = path, tokens, say
        self._seen = self._before = _stamp(path)

    def find(self, token: str) -> str | None:
        """As `Tokens.find`."""
        return self._tokens.find(token)

    @contextmanager
    def watched(self, pause: float = 0.4) -> Iterator[None]:
        """Look every ``pause`` seconds in a thread of its own, until the block ends. Two looks take less than a
        second."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(pause):
                self.look()

        thread = threading.Thread(target=watch, name="tokens", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def look(self) -> None:
        """Read the file if it has changed, and is the same as at the last look: an editor may still be writing it."""
        stamp, before = _stamp(self._path), self._before
        self._before = stamp
        if stamp == self._seen or stamp != before:
            return
        self._seen = stamp
        try:
            if stamp is None:
                raise InputError("the token file was removed", where=str(self._path))
            self._tokens, told = open_tokens(self._path)
            if told:  # the file has hashes now
                self._seen = _stamp(self._path)
        except ShardcError as error:
            told = f"{error}\n  the tokens stay as they were"
        self._say(told or f"{self._path}: {len(self._tokens.hashes)} tokens")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file does; None when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def open_tokens(path: Path) -> tuple[Tokens, str]:
    """The tokens of a file and what to tell whoever starts the server, "" for nothing.

    A file that is not there is made, with one new token, which is told: nobody else ever sees it. Tokens in plain
    text are replaced by their hashes. Raises `InputError` for lines that are none, `EnvironmentProblem` when the file
    cannot be read or written.
    """
    try:
        if not path.exists():
            token = secrets.token_urlsafe(32)
            _write(path, [f"default {_hash(token)}"])
            return Tokens({"default": _hash(token)[7:]}), f"the token, shown this once: {token}"
        lines = path.read_text(encoding="utf-8").splitlines()
        hashes, kept, plain = _read(lines, path)
        if plain:
            _write(path, kept)
    except UnicodeDecodeError:
        raise InputError("the token file is not text", where=str(path)) from None
    except OSError as error:
        raise EnvironmentProblem(f"the token file cannot be used: {error.strerror}", where=str(path)) from None
    told = f"{path}: {plain} plain token{'s' if plain > 1 else ''} replaced by the hash" if plain else ""
    return Tokens(hashes), told


def _hash(token: str) -> str:
    return f"sha256:{sha256(token.encode()).hexdigest()}"


def _read(lines: list[str], path: Path) -> tuple[dict[str, str], list[str], int]:
    """Hashes by name, the lines with every token hashed, and how many were not."""
    hashes: dict[str, str] = {}
    kept, plain = [], 0
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            kept.append(line)
            continue
        where = f"{path}:{number}"
        name, word = (words[0], words[1]) if len(words) == 2 else (f"line-{number}", words[0])
        if len(words) > 2 or not (_HASHED.fullmatch(word) or _TOKEN.fullmatch(word)) or word == "sha256:":
            raise InputError("the line is not a token", where=where, fix="write NAME sha256:HEX, or NAME TOKEN")
        if not _HASHED.fullmatch(word):
            if len(word) < _SHORTEST:
                fix = "make one with python -c 'import secrets; print(secrets.token_urlsafe(32))'"
                raise InputError(f"a token must have at least {_SHORTEST} characters", where=where, fix=fix)
            word, plain = _hash(word), plain + 1
        if name in hashes:
            raise InputError(f"two tokens are called {name!r}", where=where, fix="name each once")
        hashes[name] = word[7:]
        kept.append(f"{name} {word}")
    if not hashes:
        raise InputError(
            "the file contains no token", where=str(path), fix="remove the file: the server then makes a token"
        )
    return hashes, kept, plain


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600) as file:
        file.write(("\n".join(lines) + "\n").encode())
