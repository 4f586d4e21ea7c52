"""A position in a text, and the few patterns with which the reader moves over it.

There is no token list: each construct is taken by one match of a compiled pattern, and values in brackets are
cut out whole, so that equal texts (shapes, shardings, dimension lists) are parsed once and answered from a cache.
"""

from __future__ import annotations

import re

from shardc.hlo.errors import Location, ParseError

__all__ = ["STRING", "Scanner", "move_error", "strip_comments", "unquote"]

STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.S)
_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|/\*.*?\*/|//[^\n]*|/\*', re.S)
_NOT_NEWLINE = re.compile(r"[^\n]")
_SPACE = re.compile(r"\s*")
_SIMPLE = {
    "{": re.compile(r'\{[^{}"]*(?:"(?:[^"\\]|\\.)*"[^{}"]*)*\}', re.S),
    "(": re.compile(r'\([^()"]*\)'),
    "[": re.compile(r'\[[^\[\]"]*\]'),
}
_BRACKETS = {
    "{": re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.S),
    "(": re.compile(r'"(?:[^"\\]|\\.)*"|[()]', re.S),
    "[": re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]]', re.S),
}
_ESCAPE = re.compile(rb"\\([xX][0-9a-fA-F]+|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.S)
_ESCAPES = {
    **{name.encode(): code for name, code in zip("ntrabfv", b"\n\t\r\a\b\f\v", strict=True)},
    **{bytes((c,)): c for c in b"\\?'\""},
}


def strip_comments(text: str, file: str = "") -> str:
    """The same text with comments blanked out; lines and columns stay what they were."""
    if "/*" not in text and "//" not in text:
        return text

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found[0] in "\"'":
            return found
        if found == "/*":
            where = location_at(text, match.start(), file)
            raise ParseError("the comment is not closed", where=where, fix="close it with */")
        return _NOT_NEWLINE.sub(" ", found)

    return _COMMENT.sub(blank, text)


def location_at(text: str, position: int, file: str) -> Location:
    line = text.count("\n", 0, position) + 1
    return Location(file, line, position - (text.rfind("\n", 0, position) + 1) + 1)


def move_error(error: ParseError, location: Location | None) -> ParseError:
    """An error inside a piece of text, placed in the file where the piece starts at ``location``."""
    inner = error.where
    if location is None or not isinstance(inner, Location):
        return error
    column = inner.column + location.column - 1 if inner.line == 1 else inner.column
    return ParseError(error.what, where=Location(location.file, location.line + inner.line - 1, column), fix=error.fix)


def unquote(quoted: str) -> str:
    """The value of a quoted string, escapes resolved. Escaped bytes are UTF-8; those that are not stay surrogates.

    Raises `ParseError` for escapes that C does not have.
    """
    body = quoted[1:-1]
    if "\\" not in body:
        return body

    def value(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        if code in _ESCAPES:
            return bytes((_ESCAPES[code],))
        if code[:1] in b"uU" and len(code) > 1:
            return chr(int(code[1:], 16)).encode("utf-8")
        number = int(code[1:], 16) if code[:1] in b"xX" and len(code) > 1 else int(code, 8) if code.isdigit() else -1
        if not 0 <= number <= 255:
            raise ValueError
        return bytes((number,))

    try:
        return _ESCAPE.sub(value, body.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    except ValueError:
        raise ParseError(f"unknown escape in {quoted}", where=Location("", 1, 1)) from None


class Scanner:
    """``text`` (without comments) and the position ``pos`` of the next thing to read; ``raw`` has the comments too."""

    __slots__ = ("file", "pos", "raw", "text")

    def __init__(self, text: str, file: str = "", pos: int = 0, raw: str | None = None) -> None:
        self.raw = text if raw is None else raw
        self.text = text
        self.file = file
        self.pos = pos

    def location(self, position: int | None = None) -> Location:
        return location_at(self.text, self.pos if position is None else position, self.file)

    def error(self, what: str, *, at: int | None = None, fix: str | None = None) -> ParseError:
        return ParseError(what, where=self.location(at), fix=fix)

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.pos)
        assert match is not None
        self.pos = match.end()

    def peek(self) -> str:
        """The next character after spaces, empty at the end."""
        self.skip_space()
        return self.text[self.pos : self.pos + 1]

    def at_end(self) -> bool:
        return not self.peek()

    def accept(self, literal: str) -> bool:
        """Move over ``literal`` when it comes next."""
        self.skip_space()
        if self.text.startswith(literal, self.pos):
            self.pos += len(literal)
            return True
        return False

    def expect(self, literal: str, context: str = "") -> None:
        if not self.accept(literal):
            raise self.error(f"expected {literal!r}{' ' + context if context else ''}, found {self.excerpt()}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match at the position and move behind it; the pattern skips leading spaces itself."""
        found = pattern.match(self.text, self.pos)
        if found is not None:
            self.pos = found.end()
        return found

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Like `match`, but an error that says ``what`` was expected."""
        found = self.match(pattern)
        if found is None:
            self.skip_space()
            raise self.error(f"expected {what}, found {self.excerpt()}")
        return found

    def take_bracketed(self) -> str:
        """The text from the bracket at the position to its partner, both included; strings are respected."""
        self.skip_space()
        opener = self.text[self.pos : self.pos + 1]
        if opener not in _SIMPLE:
            raise self.error(f"expected an opening bracket, found {self.excerpt()}")
        simple = _SIMPLE[opener].match(self.text, self.pos)
        if simple is not None:
            self.pos = simple.end()
            return simple.group()
        start, depth = self.pos, 0
        for found in _BRACKETS[opener].finditer(self.text, start):
            token = found.group()
            if token == opener:
                depth += 1
            elif token[0] != '"':
                depth -= 1
                if depth == 0:
                    self.pos = found.end()
                    return self.text[start : self.pos]
        raise self.error(f"{opener!r} is not closed")

    def excerpt(self) -> str:
        """The next few characters for a message."""
        rest = self.text[self.pos : self.pos + 40].split("\n", 1)[0].rstrip()
        return repr(rest) if rest else "the end" if self.pos >= len(self.text) else "the end of the line"
